"""What the small language model of the recipe reads before it is fine-tuned."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beltrami.data.hierarchy import Hierarchy
from beltrami.data.taxonomy_questions import NO, YES, taxonomy_facts
from beltrami.data.word_problems import generate_problems, practice_text
from beltrami.data.word_problems.answers import MARK

FACTS = 6  # sentences in a text about a taxonomy
SAMPLES = 3_000  # problems whose words are taken for all there are


@dataclass(frozen=True)
class Corpus:
    """Text without an end.

    Args:
        name: fit for a file name.
        text: draws one text.
        sample: texts that hold every word there is, also those that only fine-tuning will bring.
        digest: of all that the texts depend on.
    """

    name: str
    text: Callable[[random.Random], str]
    sample: tuple[str, ...]
    digest: str


def arithmetic_corpus(largest: int) -> Corpus:
    """Sums, and stories of one or two events, with numbers up to `largest`."""
    problems = generate_problems(SAMPLES, steps=(1, 2, 3), distractors=(0, 1))
    sample = tuple(f"{p.question}\n{p.solution}\n" for p in problems)

    def text(draws: random.Random) -> str:
        return practice_text(draws, largest=largest)

    return Corpus("arithmetic", text, sample, _digest([*sample, str(largest)]))


def taxonomy_corpus(hierarchy: Hierarchy) -> Corpus:
    """The edges of a taxonomy, a sentence each."""
    facts = tuple(f"{fact}\n" for fact in taxonomy_facts(hierarchy))

    def text(draws: random.Random) -> str:
        return "".join(draws.choice(facts) for _ in range(FACTS))

    return Corpus("taxonomy", text, (*facts, f"Is a?\n{MARK} {YES} {NO}\n"), _digest(facts))


def _digest(texts: Iterable[str]) -> str:
    sha = hashlib.sha256()
    for text in texts:
        sha.update(f"{len(text)}:{text}".encode())
    return sha.hexdigest()
