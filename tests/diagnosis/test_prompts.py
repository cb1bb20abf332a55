"""δ of prompts of a tiny language model, and whether it goes with right answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from beltrami.diagnosis import prompts as module
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.diagnose import diagnose
from beltrami.diagnosis.prompts import (
    check_model,
    hidden_states,
    prompts,
    read_prompts,
)
from tests.diagnosis.conftest import WORDS
from tests.diagnosis.page_numbers import cell_numbers, unknown_numbers


def ask(folder: Path, file: Path, **options: object) -> dict[str, object]:
    shares: list[float] = []
    config = DiagnoseConfig(str(folder), **{"texts": file, **options})  # type: ignore[arg-type]
    found = prompts(config, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    return found


def some_prompts(tmp_path: Path, correct: bool = True) -> Path:
    g = torch.Generator().manual_seed(0)
    lines = []
    for i in range(40):
        length = 6 + int(torch.randint(12, (), generator=g))
        drawn = torch.randint(len(WORDS), (length,), generator=g).tolist()
        record = {"prompt": " ".join(WORDS[k] for k in drawn)}
        lines.append(json.dumps(record | ({"correct": i % 2 == 0} if correct else {})))
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_every_prompt_has_a_delta_beside_noise(folder: Path, tmp_path: Path) -> None:
    found = ask(folder, some_prompts(tmp_path, correct=False))
    assert found["prompts"] == 40
    assert len(found["values"]) == len(found["noise_values"]) == len(found["tokens"]) == 40
    assert all(0 <= v <= 1 for v in found["values"])
    assert found["correctness"] is None


def test_every_number_of_the_page_is_in_the_document(folder: Path, tmp_path: Path) -> None:
    file, out = some_prompts(tmp_path), tmp_path / "out"
    written = diagnose(DiagnoseConfig(str(folder), texts=file, only=("prompts",), out=out))
    page = written.report.read_text(encoding="utf-8")
    assert len(cell_numbers(page, written.document)) > 15
    assert unknown_numbers(page, written.document) == []


def test_the_delta_is_that_of_the_layers_states(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    from beltrami.analysis.gromov import delta_hyperbolicity

    path = tmp_path / "p.txt"
    path.write_text("Tom has two red apples and one pear\n", encoding="utf-8")
    found = ask(folder, path, layer=0)
    ids = torch.tensor([[2, 3, 4, 5, 6, 7, 8, 9]])
    rows = AutoModel.from_pretrained(folder).get_input_embeddings()(ids)[0].detach().double()
    base = int(torch.randperm(8, generator=torch.Generator().manual_seed(0))[0])
    expected = delta_hyperbolicity(rows, base=base).relative
    assert found["values"] == [pytest.approx(expected, abs=1e-5)]


def test_right_and_wrong_answers_are_compared(folder: Path, tmp_path: Path) -> None:
    told = ask(folder, some_prompts(tmp_path))["correctness"]
    assert isinstance(told, dict)
    assert (told["right"], told["wrong"]) == (20, 20)
    assert abs(told["correlation"]["value"]) < 0.6
    assert told["correlation"]["low"] < told["correlation"]["value"] < told["correlation"]["high"]
    low, high = sorted((told["delta_of_right"]["mean"], told["delta_of_wrong"]["mean"]))
    assert 0 < low <= high < 1


def test_too_few_answers_are_not_compared(folder: Path, tmp_path: Path) -> None:
    told = ask(folder, some_prompts(tmp_path), prompts=12)["correctness"]
    assert isinstance(told, dict)
    assert "too few" in told["missing"]
    assert "correlation" not in told


def test_a_task_is_answered_by_the_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEW_TOKENS", 4)
    records = [{"question": f"Tom has {w} apples ?", "answer": "so #### 3"} for w in WORDS[2:10]]
    path = tmp_path / "task.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    found = ask(folder, None, task=path)  # type: ignore[arg-type]
    told = found["correctness"]
    assert isinstance(told, dict)
    assert told["right"] + told["wrong"] == found["prompts"] == 8
    assert found["asked"] is True


def test_short_prompts_are_counted(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("Tom has\n\nTom has two red apples\n", encoding="utf-8")
    found = ask(folder, path)
    assert found["prompts"] == 1
    assert found["left_out_for_fewer_than_4_tokens"] == 1
    path.write_text("Tom has\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no prompt has 4 tokens"):
        ask(folder, path)


def test_a_prompt_longer_than_the_model_is_cut_and_counted(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("Tom has two red apples\n" + "Tom has two " * 900 + "\n", encoding="utf-8")
    found = ask(folder, path, layer=0)
    assert found["cut_off"] == 1
    assert found["tokens"] == [5, 2048]


def test_tokens_that_the_tokenizer_adds_do_not_count(folder: Path) -> None:
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder)
    plain = hidden_states(model, tokenizer, "Tom has two", 0)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<end> $A", special_tokens=[("<end>", 0)]
    )
    begun = hidden_states(model, tokenizer, "Tom has two", 0)
    assert begun.tokens == plain.tokens == [2, 3, 4]
    torch.testing.assert_close(begun.points, plain.points)


def test_layers_that_are_not_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--layer must be from -3 to 2, got 7"):
        ask(folder, some_prompts(tmp_path), layer=7)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "has no prompts"),
        ("{\n", "line 1 is not valid JSON"),
        ('{"prompt": " "}\n', "line 1: the prompt is empty"),
        ('{"text": "a"}\n', 'expected an object with "prompt"'),
        ('{"prompt": "a", "correct": 1}\n', '"correct" must be true or false, got 1'),
    ],
)
def test_files_that_are_no_prompts(content: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        read_prompts(path)


@pytest.mark.parametrize("source", ["glove", "wordnet-mammals", __file__])
def test_a_table_answers_nothing(source: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need a model"):
        check_model(DiagnoseConfig(source, texts=some_prompts(tmp_path)))
    check_model(DiagnoseConfig(source))
    with pytest.raises(ValueError, match="minilm only encodes"):
        check_model(DiagnoseConfig("minilm", task=some_prompts(tmp_path)))
