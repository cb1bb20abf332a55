from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data.word_problems import (
    WordProblem,
    WordProblemError,
    find_answer,
    read_problems,
    same_answer,
    without_overlap,
)

RECORDS = {
    "gsm8k": {"question": "How many  in all ?", "answer": "48/2 = <<48/2=24>>24\n#### 1,024"},
    "mawps": {"original_text": "How many in all ?", "ans": 1024.0, "equation": "X=1000+24"},
    "svamp": {"Body": "Ada has 1000", "Question": "How many in all?", "Answer": 1024.0},
    "aqua": {
        "question": "How many?",
        "options": ["A)1024", "B)7"],
        "rationale": "It is clear.",
        "correct": "A",
    },
    "adapters": {"instruction": "How many in all ?", "input": "", "output": "", "answer": "1024.0"},
}


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("name", RECORDS)
def test_every_format(name: str, lines: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    record = RECORDS[name]
    path.write_text(json.dumps(record) if lines else json.dumps([record], indent=2))
    (problem,) = read_problems(path)
    assert problem.question.startswith("Ada has 1000. How many" if name == "svamp" else "How many")
    assert " ?" not in problem.question
    assert problem.answer == ("A" if name == "aqua" else "1024")
    if problem.solution:
        found = find_answer(problem.solution, choice=name == "aqua")
        assert same_answer(found, problem.answer)
    assert ("B)7" in problem.question) == (name == "aqua")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no problems"),
        ("[]", "no problems"),
        ("{", "line 1 is not JSON"),
        ("[1, 2", "not JSON"),
        ("[1]", "record 1: expected an object"),
        ('{"text": "x"}', "cannot tell the format from the keys text; known are"),
        ('{"question": "x", "answer": "no mark"}', "line 1: there is no question or no answer"),
        ('{"question": "", "answer": "#### 3"}', "no question"),
        ('{"original_text": "x", "ans": true}', "no answer"),
        ('{"question": "x", "options": [], "correct": "Z"}', "no answer"),
        ('{"instruction": "x", "answer": ""}', "no answer"),
    ],
)
def test_bad_files_are_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "problems.json"
    path.write_text(text)
    with pytest.raises(WordProblemError, match=words) as error:
        read_problems(path)
    assert "problems.json" in str(error.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(WordProblemError, match="cannot read"):
        read_problems(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WordProblemError, match="cannot read"):
        read_problems(tmp_path / "binary")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.recursive(
        st.none() | st.text() | st.floats(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(
                st.sampled_from(
                    ["question", "answer", "ans", "original_text", "options", "correct"]
                ),
                s,
            )
        ),
    )
)
def test_any_json_is_read_or_refused(data: object, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps([data]))
    with contextlib.suppress(WordProblemError):
        assert all(p.question and p.answer for p in read_problems(path))


def test_overlap_is_found_but_for_spelling() -> None:
    train = [WordProblem("Ada has 3 eggs. How many?", "3")]
    test = [
        WordProblem("ada has 3 eggs , how many ?", "3"),
        WordProblem("Ada has 4 eggs. How many?", "4"),
        WordProblem("Ada has 4 eggs. How many?", "4"),
        WordProblem("Ada has 3.5 eggs. How many?", "3.5"),
    ]
    assert [p.answer for p in without_overlap(test, train)] == ["4", "3.5"]
