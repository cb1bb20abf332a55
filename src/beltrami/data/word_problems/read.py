"""Reads word problems from files in the formats of the public sets.

| set                       | keys of a record                                   |
|---------------------------|----------------------------------------------------|
| GSM8K                     | `question`, `answer` with `####` before the number |
| MAWPS                     | `original_text`, `ans`, `equation`                 |
| SVAMP                     | `Body`, `Question`, `Answer`, `Equation`           |
| AQuA                      | `question`, `options`, `rationale`, `correct`      |
| LLM-Adapters (all sets)   | `instruction`, `answer`, `output`                  |

A file is one JSON list, or JSON lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from beltrami.data.word_problems.answers import MARK, find_answer
from beltrami.data.word_problems.problem import WordProblem, WordProblemError

Record = Mapping[str, Any]


def read_problems(path: str | Path) -> list[WordProblem]:
    """The problems of a file; a record that is not understood is a `WordProblemError`."""
    path = Path(path)
    problems = []
    for place, record in _records(path):
        if not isinstance(record, dict):
            raise WordProblemError(f"{path}, {place}: expected an object, got {record!r:.60}")
        reader = next((read for keys, read in _FORMATS if keys <= record.keys()), None)
        if reader is None:
            known = "; ".join(", ".join(sorted(keys)) for keys, _ in _FORMATS)
            raise WordProblemError(
                f"{path}, {place}: cannot tell the format from the keys "
                f"{', '.join(sorted(record)) or '(none)'}; known are {known}"
            )
        problem = reader(record)
        if problem is None or not problem.question:
            raise WordProblemError(f"{path}, {place}: there is no question or no answer in it")
        problems.append(problem)
    if not problems:
        raise WordProblemError(f"{path} has no problems in it")
    return problems


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WordProblemError(f"cannot read {path}: {error}") from error
    if text.lstrip().startswith("["):
        listed = _parsed(text, str(path))
        yield from ((f"record {i}", record) for i, record in enumerate(listed, 1))
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f"line {number}", _parsed(line, f"{path}, line {number}")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise WordProblemError(f"{where} is not JSON: {error}") from error


def _gsm8k(record: Record) -> WordProblem | None:
    solution = str(record["answer"])
    if MARK not in solution:
        return None
    answer = find_answer(solution)
    return None if answer is None else WordProblem(_tidy(record["question"]), answer, solution)


def _mawps(record: Record) -> WordProblem | None:
    return _with_equation(_tidy(record["original_text"]), record["ans"], record.get("equation"))


def _svamp(record: Record) -> WordProblem | None:
    body = _tidy(record["Body"])
    body = body if body.endswith((".", "!", "?", ",")) else f"{body}."
    question = f"{body} {_tidy(record['Question'])}"
    return _with_equation(question, record["Answer"], record.get("Equation"))


def _aqua(record: Record) -> WordProblem | None:
    if not isinstance(record["options"], list):
        return None
    options = "\n".join(str(option) for option in record["options"])
    correct = str(record["correct"]).strip().upper()
    if correct not in tuple("ABCDE"):
        return None
    rationale = str(record.get("rationale", ""))
    solution = f"{rationale}\n{MARK} {correct}".strip()
    question = _tidy(record["question"])
    return WordProblem(f"{question}\n{options}", correct, solution) if question else None


def _adapters(record: Record) -> WordProblem | None:
    answer = str(record["answer"]).strip()
    more = str(record.get("input") or "").strip()
    question = _tidy(record["instruction"]) + (f"\n{more}" if more else "")
    solution = str(record.get("output") or "").strip()
    if solution and MARK not in solution:
        solution = f"{solution}\n{MARK} {_plain(answer)}"
    return WordProblem(question, _plain(answer), solution) if answer else None


def _with_equation(question: str, answer: Any, equation: Any) -> WordProblem | None:
    if isinstance(answer, bool) or not isinstance(answer, int | float | str) or answer == "":
        return None
    number = _plain(str(answer))
    worked = f"{str(equation).strip()}\n" if equation else ""
    return WordProblem(question, number, f"{worked}{MARK} {number}")


def _plain(number: str) -> str:
    """Without a `.0` at the end."""
    return number.removesuffix(".0")


def _tidy(text: Any) -> str:
    """One space between words, and none before punctuation, where the tokenised sets have one."""
    words = " ".join(text.split()) if isinstance(text, str) else ""
    for mark in ".,?!":
        words = words.replace(f" {mark}", mark)
    return words


_FORMATS: tuple[tuple[frozenset[str], Callable[[Record], WordProblem | None]], ...] = (
    (frozenset({"question", "options", "correct"}), _aqua),
    (frozenset({"question", "answer"}), _gsm8k),
    (frozenset({"original_text", "ans"}), _mawps),
    (frozenset({"Body", "Question", "Answer"}), _svamp),
    (frozenset({"instruction", "answer"}), _adapters),
)
