from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parent.parent / "README.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_a_taxonomy_is_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(examples()[0], str(README), "exec"), names)
    model = names["model"]
    assert {n.label for n in model.nearest("dog", k=2)} == {"canine", "carnivore"}
    assert "fox" in model.embedding_
    assert (tmp_path / "carnivores.safetensors").exists()


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = examples()[1]
    exec(compile(example, str(README), "exec"), {})
    promised = re.findall(r"print\(.*\)  # (\S+?)(?::.*)?$", example, re.MULTILINE)
    assert capsys.readouterr().out.split() == promised
    assert len(promised) == 3


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
