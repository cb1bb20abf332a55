from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from beltrami.data.word_problems import WordProblem
from beltrami.recipes.hyplora.questions import load_questions
from tests.recipes.hyplora.small import SMALL


def write(path: Path, answers: list[str], start: int = 0) -> Path:
    """A file in LLM-Adapters' format."""
    records = [
        {"instruction": f"Question {i}?", "output": f"the correct answer is {a}", "answer": a}
        for i, a in enumerate(answers, start)
    ]
    path.write_text(json.dumps(records))
    return path


def test_generated_parts_share_no_calculation() -> None:
    asked = load_questions(dataclasses.replace(SMALL, train_size=300, test_size=50))
    assert (len(asked.train), len(asked.validation), len(asked.tested)) == (300, 30, 50)
    learned = {p.solution for p in (*asked.train, *asked.validation)}
    assert not learned & {p.solution for p in asked.tested}
    assert not {p.solution for p in asked.train} & {p.solution for p in asked.validation}


def test_words_letters_and_numbers(tmp_path: Path) -> None:
    files = {
        "words": write(tmp_path / "words.json", ["true", "false"] * 20),
        "letters": write(tmp_path / "letters.json", list("ABCDE") * 8),
        "numbers": write(tmp_path / "numbers.json", [str(n) for n in range(40)]),
        "many": write(tmp_path / "many.json", [str(n) for n in range(60)]),
    }
    config = dataclasses.replace(SMALL, model="somewhere", train_size=None)
    words = load_questions(
        dataclasses.replace(config, data=str(files["words"]), task="commonsense")
    )
    assert words.words == ("false", "true")
    assert words.is_right("the correct answer is True", WordProblem("?", "true"))
    assert not words.is_right("true, no: the correct answer is false", WordProblem("?", "true"))
    letters = load_questions(dataclasses.replace(config, data=str(files["letters"])))
    assert letters.is_right("so the answer is B.", WordProblem("?", "B"))
    numbers = load_questions(dataclasses.replace(config, data=str(files["numbers"])))
    assert numbers.is_right("5 + 2 = 7\n#### 7", WordProblem("?", "7"))
    parts = (numbers.train, numbers.validation, numbers.tested)
    assert [len(part) for part in parts] == [29, 3, 6]  # 6 of the 8 that were held out
    for data, task, message in (
        ("words", "arithmetic", "such as 'false'; for words give --task commonsense"),
        ("many", "commonsense", "there are 54 different answers"),
    ):
        with pytest.raises(ValueError, match=message):
            load_questions(dataclasses.replace(config, data=str(files[data]), task=task))


def test_what_is_learned_is_not_tested(tmp_path: Path) -> None:
    learn = write(tmp_path / "learn.json", [str(n) for n in range(40)])
    test = write(tmp_path / "test.json", [str(n) for n in range(35, 45)], start=35)
    config = dataclasses.replace(
        SMALL, model="somewhere", data=str(learn), tests=(test,), train_size=None, test_size=None
    )
    asked = load_questions(config)
    assert {p.question for p in asked.tested} == {f"Question {n}?" for n in range(40, 45)}
    same = dataclasses.replace(config, tests=(learn,))
    with pytest.raises(ValueError, match="every question"):
        load_questions(same)
    with pytest.raises(ValueError, match="two files named"):
        load_questions(dataclasses.replace(config, tests=(test, test)))


def test_too_little(tmp_path: Path) -> None:
    one = write(tmp_path / "one.json", ["1"])
    config = dataclasses.replace(SMALL, model="somewhere", data=str(one), train_size=None)
    with pytest.raises(ValueError, match="too few questions"):
        load_questions(config)
    taxonomy = dataclasses.replace(SMALL, task="taxonomy", data="carnivores", train_size=90_000)
    with pytest.raises(ValueError, match="has only"):
        load_questions(taxonomy)
    bare = tmp_path / "bare.json"
    records = [{"instruction": f"Q {i}?", "output": "", "answer": "1"} for i in range(30)]
    bare.write_text(json.dumps(records))
    with pytest.raises(ValueError, match="no solution"):
        load_questions(dataclasses.replace(config, data=str(bare)))
