"""Word problems of graded difficulty, made from a seed: no file is needed, and none is copied.

A problem follows one quantity through some events. How many events, and how many sentences with
numbers that do not matter, is its difficulty.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from beltrami.checks import check_integer
from beltrami.data.word_problems.answers import MARK
from beltrami.data.word_problems.problem import WordProblem

NAMES = (
    "Ada", "Ben", "Chloe", "Dan", "Emma", "Finn", "Grace", "Hugo", "Iris", "Jon", "Kira", "Leo",
    "Mia", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tara", "Uma", "Victor", "Wendy", "Yara", "Zoe",
)  # fmt: skip
THINGS = (
    "apples", "beads", "books", "buttons", "cards", "coins", "cookies", "eggs", "flowers",
    "marbles", "nuts", "pencils", "plums", "shells", "stamps", "stickers", "stones", "tickets",
    "toys",
)  # fmt: skip
GAINS = (
    "{name} buys {k} more {things}.",
    "{friend} gives {name} {k} {things}.",
    "{name} finds {k} {things}.",
)
LOSSES = (
    "{name} gives {k} {things} to {friend}.",
    "{name} loses {k} {things}.",
    "{name} sells {k} {things}.",
)
TIMES = (
    "By the next week {name} has {k} times as many {things}.",
    "{name} collects until there are {k} times as many {things}.",
)
PARTS = (
    "{name} puts the {things} into {k} equal boxes and keeps one box.",
    "{name} shares the {things} equally among {k} people and keeps one share.",
)
ASIDES = (
    "{friend} has {k} {other}.",
    "{friend} is {k} years old.",
    "There are {k} {other} on the table.",
    "It took {k} minutes.",
)
LARGEST = 999  # number in any step, by default
SMALLEST_RANGE = 20  # numbers up to here leave an event possible at every value
HANDFUL = 60  # most things that anyone has at first, gets or gives away
TRIES = 200  # to find one more problem that is new


EVENTS = {"+": GAINS, "-": LOSSES, "*": TIMES, "/": PARTS}


def generate_problems(
    count: int,
    *,
    seed: int = 0,
    steps: Sequence[int] = (1, 2, 3),
    distractors: Sequence[int] = (0, 1),
    largest: int = LARGEST,
    apart_from: Sequence[WordProblem] = (),
) -> list[WordProblem]:
    """Different problems, evenly over the given numbers of steps and distractors.

    Args:
        count: how many.
        seed: of the draws.
        steps: operations a problem may take, each at least 1.
        distractors: sentences that do not matter.
        largest: number in any step; smaller ones are easier.
        apart_from: problems not to make again, such as those trained on. Neither their words nor
            their calculation will occur.
    """
    check_integer("count", count, 0)
    if not steps or min(steps) < 1:
        raise ValueError(f"steps must be numbers of at least 1, got {tuple(steps)}")
    if not distractors or min(distractors) < 0:
        raise ValueError(f"distractors must be numbers of at least 0, got {tuple(distractors)}")
    check_integer("largest", largest, SMALLEST_RANGE)
    draws = random.Random(f"word problems {seed}")
    taken = {key for problem in apart_from for key in _keys(problem)}
    kinds = [(s, d) for s in steps for d in distractors]
    made: list[WordProblem] = []
    for i in range(count):
        for _ in range(TRIES):
            problem = make_problem(draws, *kinds[i % len(kinds)], largest)
            keys = _keys(problem)
            if not keys & taken:
                break
        else:
            raise ValueError(
                f"found only {i} different problems of {steps} steps; ask for fewer, or allow more "
                "steps"
            )
        taken |= keys
        made.append(problem)
    draws.shuffle(made)
    return made


def _keys(problem: WordProblem) -> set[str]:
    return {problem.key, problem.solution or problem.key}


def make_problem(
    draws: random.Random, steps: int, distractors: int, largest: int = LARGEST
) -> WordProblem:
    """One problem, drawn; `generate_problems` says what the numbers mean and checks them."""
    name, friend, stranger = draws.sample(NAMES, 3)
    things, other = draws.sample(THINGS, 2)
    handful = min(HANDFUL, largest // 2)
    value = draws.randint(2, handful)
    sentences = [f"{name} has {value} {things}."]
    worked = []
    for _ in range(steps):
        sign, k, after = _step(draws, value, largest)
        sentence = draws.choice(EVENTS[sign])
        sentences.append(sentence.format(name=name, friend=friend, things=things, k=k))
        worked.append(f"{value} {sign} {k} = {after}")
        value = after
    for _ in range(distractors):
        aside = draws.choice(ASIDES).format(
            friend=stranger, other=other, k=draws.randint(2, handful)
        )
        sentences.insert(draws.randint(1, len(sentences)), aside)
    sentences.append(f"How many {things} does {name} have now?")
    solution = "\n".join([*worked, f"{MARK} {value}"])
    return WordProblem(" ".join(sentences), str(value), solution, steps, distractors)


def _step(draws: random.Random, value: int, largest: int) -> tuple[str, int, int]:
    """An event that is possible with this many things, its number, and how many are left."""
    numbers = {
        "+": range(2, min(HANDFUL, largest - value) + 1),
        "-": range(2, min(HANDFUL, value - 1) + 1),
        "*": [k for k in range(2, 6) if value * k <= largest],
        "/": [k for k in range(2, 10) if value % k == 0],
    }
    sign = draws.choice([sign for sign, possible in numbers.items() if possible])
    k = draws.choice(numbers[sign])
    results = {"+": value + k, "-": value - k, "*": value * k, "/": value // k}
    return sign, k, results[sign]
