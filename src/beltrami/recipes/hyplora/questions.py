"""The questions of a run: to train on, to choose by, to test on, without overlap."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from beltrami.data.hierarchy import Hierarchy
from beltrami.data.load import load_hierarchy
from beltrami.data.taxonomy_questions import NO, YES, taxonomy_questions
from beltrami.data.word_problems import (
    WordProblem,
    find_answer,
    generate_problems,
    gives_answer,
    read_problems,
    without_overlap,
)
from beltrami.data.word_problems.answers import LETTERS
from beltrami.recipes.hyplora.config import GENERATED, HypLoraRunConfig

TRAINED_ON, TESTED_ON = 2400, 300  # generated questions, by default
CHOSEN_BY = 200  # questions at most, a tenth of those to train on
HELD_OUT = 0.2  # of data that come without a test, at most:
MOST_HELD_OUT = 500
MOST_WORDS = 50  # different answers that are still taken for words to choose from


@dataclass(frozen=True)
class Questions:
    """What a run asks.

    Args:
        name: of the data.
        train, validation: to learn from, and to choose learning rates by.
        tests: by name.
        words: the answers there are; empty where answers are numbers or letters.
        hierarchy: of a taxonomy.
    """

    name: str
    train: Sequence[WordProblem]
    validation: Sequence[WordProblem]
    tests: Mapping[str, Sequence[WordProblem]]
    words: tuple[str, ...] = ()
    hierarchy: Hierarchy | None = None

    @property
    def tested(self) -> list[WordProblem]:
        """All tests, one after the other."""
        return [problem for problems in self.tests.values() for problem in problems]

    def digest(self) -> str:
        """Hash of every question and solution."""
        sha = hashlib.sha256()
        parts = {"train": self.train, "validation": self.validation, **self.tests}
        for name, part in parts.items():
            sha.update(f"{name}: {len(part)} questions\n".encode())
            for problem in part:
                sha.update(f"{problem.question}\n{problem.solution}\n{problem.answer}\n".encode())
        return sha.hexdigest()

    def is_right(self, text: str, problem: WordProblem) -> bool:
        """Whether a text gives the problem's answer."""
        return gives_answer(text, problem.answer, self.words)


def load_questions(config: HypLoraRunConfig) -> Questions:
    """The questions that the options ask for; a `ValueError` says what is wrong with them."""
    if config.task == "taxonomy":
        return _of_taxonomy(config)
    if config.data in (None, GENERATED):
        return _generated(config)
    assert config.data is not None
    return _from_files(config, Path(config.data))


def _generated(config: HypLoraRunConfig) -> Questions:
    generate = partial(
        generate_problems,
        steps=config.steps,
        distractors=config.distractors,
        largest=config.largest,
    )
    count = config.train_size or TRAINED_ON
    validation = _validation_size(count)
    learned = generate(count + validation, seed=0)
    if config.tests:
        tests = _tests(config, learned)
        _words(config.task, [problem for problems in tests.values() for problem in problems])
    else:
        tested = config.test_size or TESTED_ON
        tests = {GENERATED: generate(tested, seed=1, apart_from=learned)}
    return Questions("generated word problems", learned[validation:], learned[:validation], tests)


def _of_taxonomy(config: HypLoraRunConfig) -> Questions:
    hierarchy = load_hierarchy(config.data or "wordnet-mammals")
    train, test = config.train_size or TRAINED_ON, config.test_size or TESTED_ON
    validation = _validation_size(train)
    total = train + validation + test
    questions = taxonomy_questions(hierarchy, total, most_steps=max(config.steps))
    if len(questions) < total:
        raise ValueError(
            f"{hierarchy.name} has only {len(questions)} questions of up to {max(config.steps)} "
            f"step(s), and {total} were asked for; give smaller --train-size and --test-size, or "
            "larger --steps"
        )
    parts = (questions[:test], questions[test : test + validation], questions[test + validation :])
    tests = {"taxonomy": parts[0]}
    return Questions(hierarchy.name, parts[2], parts[1], tests, (YES, NO), hierarchy)


def _from_files(config: HypLoraRunConfig, path: Path) -> Questions:
    read = without_overlap(read_problems(path), ())
    random.Random("questions").shuffle(read)
    if config.tests:
        tests = _tests(config, read)
    else:
        held_out = min(MOST_HELD_OUT, int(len(read) * HELD_OUT))
        tests = {path.stem: read[:held_out][: config.test_size]}
        read = read[held_out:]
    validation = _validation_size(min(len(read), config.train_size or len(read)))
    train = read[validation:][: config.train_size]
    if not train or not validation or not any(tests.values()):
        raise ValueError(
            f"{path} has too few questions: {len(train)} are left to train on, {validation} to "
            f"choose by and {sum(map(len, tests.values()))} to test on; give a larger file, or "
            "--tests with files of their own"
        )
    words = _words(config.task, [*read, *(p for problems in tests.values() for p in problems)])
    without = sum(not problem.solution for problem in read)
    if without:
        raise ValueError(
            f"{without} of the questions in {path} have no solution to learn from; give a file "
            "that has one for each"
        )
    return Questions(path.stem, train, read[:validation], tests, words)


def _tests(
    config: HypLoraRunConfig, learned: Iterable[WordProblem]
) -> dict[str, list[WordProblem]]:
    problems_by_file: dict[str, list[WordProblem]] = {}
    learned = list(learned)
    for path in config.tests:
        if path.stem in problems_by_file:
            raise ValueError(f"--tests has two files named {path.stem}; rename one")
        problems = without_overlap(read_problems(path), learned)
        random.Random("questions").shuffle(problems)
        problems_by_file[path.stem] = problems[: config.test_size]
        if not problems:
            raise ValueError(f"every question of --tests {path} is among those to train on")
    return problems_by_file


def _validation_size(train: int) -> int:
    return min(CHOSEN_BY, max(1, train // 10)) if train else 0


def _words(task: str, problems: Iterable[WordProblem]) -> tuple[str, ...]:
    """The different answers of a commonsense task; none for arithmetic, where they are read."""
    answers = sorted({problem.answer for problem in problems})
    if task == "commonsense":
        if len(answers) > MOST_WORDS:
            raise ValueError(
                f"--task commonsense is for a few words to choose from, and there are "
                f"{len(answers)} different answers; for numbers and letters give --task arithmetic"
            )
        return tuple(answers)
    strange = [a for a in answers if a not in LETTERS and find_answer(a) != a.replace(",", "")]
    if strange:
        raise ValueError(
            f"{len(strange)} of {len(answers)} different answers are neither a number nor a letter "
            f"from A to E, such as {strange[0]!r}; for words give --task commonsense"
        )
    return ()
