from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beltrami.data.word_problems import find_answer, find_word, same_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12 + 5 = 17\n#### 17", "17"),
        ("#### 1,234", "1234"),
        ("So the answer is $3.50 a week.", "3.50"),
        ("The answer is: 7. Then 8 and 9 follow.", "7"),
        ("The answer is 7\n#### 8", "8"),
        ("#### 5\nAda has 3 eggs. 3 + 4 = 7", "5"),
        ("it is 4, or 5", "5"),
        ("minus: -3", "-3"),
        ("5-3", "3"),
        ("x = (2+6)-.5", ".5"),
        ("step-4", "4"),
        ("1,000-250", "250"),
        ("2+-3", "-3"),
        ("#### -1,234.5", "-1234.5"),
        ("####-7", "-7"),
        ("$-3", "-3"),
        ("answer is\nnothing, but 12", "12"),
        ("1,2 and 3", "3"),
        ("no number here", None),
        ("", None),
        ("####", None),
    ],
)
def test_numbers(text: str, answer: str | None) -> None:
    assert find_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is B", "B"),
        ("#### C\nA or B", "C"),
        ("first A, then D", "D"),
        ("BAD CAB", None),
        ("Answer: (E)", "E"),
    ],
)
def test_choices(text: str, answer: str | None) -> None:
    assert find_answer(text, choice=True) == answer


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        ("17", "17.0", True),
        ("1,700", "1700", True),
        ("$5", "5", True),
        ("0.33333", "0.333333", True),
        ("0.33", "0.333", False),
        ("17", "18", False),
        ("b", "B", True),
        ("A", "B", False),
        ("nan", "nan", True),  # the same words
        ("A", "1", False),
        (None, "1", False),
    ],
)
def test_sameness(found: str | None, expected: str, same: bool) -> None:
    assert same_answer(found, expected) is same


@given(st.text(), st.booleans())
def test_any_text_has_an_answer_or_none(text: str, choice: bool) -> None:
    found = find_answer(text, choice=choice)
    assert found is None or same_answer(found, found)


@given(st.integers(-(10**9), 10**9), st.text(alphabet="abc \n", max_size=20))
def test_what_is_written_is_found(number: int, before: str) -> None:
    assert same_answer(find_answer(f"{before}#### {number:,} and more"), str(number))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dog is a kind of animal.\n#### yes", "yes"),
        ("#### No\nyes", "no"),
        ("yes, the correct answer is no", "no"),
        ("I think yes or no", "no"),
        ("nothing, not now", None),
        ("", None),
    ],
)
def test_words(text: str, found: str | None) -> None:
    assert find_word(text, ("yes", "no")) == found


def test_the_longer_word_wins() -> None:
    assert find_word("the correct answer is answer10", ("answer1", "answer10")) == "answer10"
    assert find_word("A+ (b)", ("a+", "(b)")) == "(b)"
