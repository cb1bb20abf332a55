"""The texts whose loss is measured."""

from __future__ import annotations

import json
from pathlib import Path

from beltrami.diagnosis.text_files import read_text


def read_texts(path: Path) -> list[str]:
    """One a line, blank lines left out; in a .jsonl file, "text" of each object, also if empty."""
    lines = read_text(path, "--texts").split("\n")
    if path.suffix.lower() != ".jsonl":
        found = [line.strip("\r") for line in lines if line.strip()]
    else:
        found = [
            _text(f"--texts {path}, line {number}", line)
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
    if not found:
        raise ValueError(f"--texts {path} has no texts")
    return found


def _text(where: str, line: str) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is no JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError(f'{where}: expected an object with "text", got {line[:60]!r}')
    text: str = record["text"]
    return text
