from __future__ import annotations

import re
from collections import Counter

import pytest

from beltrami.data.word_problems import find_answer, generate_problems, same_answer


def calculated(solution: str) -> float:
    """Every line worked out again; the chain must hold from line to line."""
    operations = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }
    value = None
    for line in solution.splitlines()[:-1]:
        left, sign, right, equals, result = line.split()
        assert equals == "="
        assert value is None or value == int(left)
        value = operations[sign](int(left), int(right))
        assert value == int(result)
    assert value is not None
    return value


def test_solutions_are_right() -> None:
    for problem in generate_problems(600, seed=3, steps=(1, 2, 5)):
        value = calculated(problem.solution)
        assert value == int(problem.answer) >= 0
        assert len(problem.solution.splitlines()) == problem.steps + 1
        assert same_answer(find_answer(problem.solution), problem.answer)


def test_difficulties_are_even_and_distractors_do_not_matter() -> None:
    problems = generate_problems(300, steps=(1, 4), distractors=(0, 2))
    assert set(Counter((p.steps, p.distractors) for p in problems).values()) == {75}
    for problem in problems:
        numbers = sum(word.strip(".?").isdigit() for word in problem.question.split())
        assert numbers == 1 + problem.steps + problem.distractors


def test_a_seed_says_it_all() -> None:
    assert generate_problems(20, seed=4) == generate_problems(20, seed=4)
    assert generate_problems(20, seed=4) != generate_problems(20, seed=5)


def test_training_and_test_share_neither_words_nor_calculations() -> None:
    train = generate_problems(800, seed=0)
    test = generate_problems(300, seed=0, apart_from=train)
    assert len({p.key for p in train}) == 800
    assert not {p.key for p in train} & {p.key for p in test}
    assert not {p.solution for p in train} & {p.solution for p in test}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": -1}, "count.*-1"),
        ({"count": 1, "steps": ()}, "steps"),
        ({"count": 1, "steps": (0,)}, "steps.*0"),
        ({"count": 1, "distractors": (-1,)}, "distractors.*-1"),
        ({"count": 10**6, "steps": (1,)}, "only .* different problems"),
    ],
)
def test_bad_requests(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        generate_problems(**settings)


def test_no_number_is_larger_than_asked_for() -> None:
    for problem in generate_problems(400, seed=2, steps=(1, 3, 5), largest=30):
        numbers = [int(n) for n in re.findall(r"\d+", problem.question + problem.solution)]
        assert min(numbers) > 0
        assert max(numbers) <= 30
        assert calculated(problem.solution) == int(problem.answer)
