"""What the small language model of the recipe reads before it is fine-tuned."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from beltrami.data.hierarchy import Hierarchy
from beltrami.data.taxonomy_questions import NO, YES, plain_name, taxonomy_facts
from beltrami.data.word_problems import generate_problems
from beltrami.data.word_problems.answers import MARK
from beltrami.recipes.hyplora.practice import practice_text

FACTS = 6  # sentences on a page about a taxonomy
OPEN = 0.2  # share of pages with a question
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
    """Pages of sums, worked stories and open questions, with numbers up to `largest`."""
    problems = generate_problems(SAMPLES, steps=(1, 2, 3), distractors=(0, 1))
    sample = tuple(f"{p.question}\n{p.solution}\n" for p in problems)

    def text(draws: random.Random) -> str:
        return practice_text(draws, largest=largest)

    return Corpus("arithmetic", text, sample, _digest([*sample, str(largest)]))


def taxonomy_corpus(hierarchy: Hierarchy) -> Corpus:
    """Pages of a taxonomy's edges, a sentence each, and of open questions."""
    facts = tuple(f"{fact}\n" for fact in taxonomy_facts(hierarchy))
    names = [plain_name(label) for label in hierarchy.labels]
    answers = (f"{MARK} {YES}\n", f"{MARK} {NO}\n")

    def text(draws: random.Random) -> str:
        body = "".join(draws.choice(facts) for _ in range(FACTS))
        if draws.random() < OPEN:
            body = f"Is {draws.choice(names)} a kind of {draws.choice(names)}?\n"
        return f"{draws.choice(answers)}{body}"  # the words of answers, before anything is asked

    sample = (*facts, *answers, *(f"Is {name} a kind of {name}?\n" for name in names))
    return Corpus("taxonomy", text, sample, _digest(sample))


def _digest(texts: Iterable[str]) -> str:
    sha = hashlib.sha256()
    for text in texts:
        sha.update(f"{len(text)}:{text}".encode())
    return sha.hexdigest()
