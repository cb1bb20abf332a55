"""Overlaps of output tables: what they are of known rows, and which rows count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from beltrami.data.vectors import VectorsError, open_unembedding
from beltrami.diagnosis import superposition as module
from beltrami.diagnosis.config import USUAL, DiagnoseConfig
from beltrami.diagnosis.diagnose import diagnose
from beltrami.diagnosis.superposition import as_overlaps, superposition
from beltrami.diagnosis.superposition_report import superposition_section

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def silent(share: float) -> None:
    assert 0 <= share <= 1


def gaussian(rows: int = 2000, width: int = 40, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def measure(tmp_path: Path, x: Tensor) -> dict[str, Any]:
    np.save(tmp_path / "x.npy", x.numpy())
    return superposition(open_unembedding(tmp_path / "x.npy"), silent)


def test_random_directions_overlap_as_they_do(tmp_path: Path) -> None:
    found = measure(tmp_path, gaussian())
    assert found["overlaps"]["mean_squared"] == pytest.approx(1 / 40, rel=0.01)
    assert found["ratio"] == pytest.approx(1, rel=0.01)
    assert found["ratio_centred"] == pytest.approx(1, rel=0.01)
    assert found["overlaps"]["welch"] < found["overlaps"]["mean_squared"]
    assert found["compared"] == found["rows"] == 2000
    assert "as in strong superposition" in found["reading"]
    assert not any(found["left_out"].values())


def test_a_common_direction_is_not_superposition(tmp_path: Path) -> None:
    found = measure(tmp_path, gaussian() + 1)
    assert found["ratio"] > 5
    assert found["ratio_centred"] == pytest.approx(1, rel=0.01)
    assert "one common direction, and not superposition" in found["reading"]


def test_clusters_are_no_common_direction(tmp_path: Path) -> None:
    centres = gaussian(4, 40, seed=1)
    x = torch.cat([centres, -centres]).repeat(250, 1) + 0.3 * gaussian()
    found = measure(tmp_path, x)
    assert found["ratio_centred"] > 3
    assert "no common direction does that" in found["reading"]
    both = measure(tmp_path, x + 2)
    assert "Part of that is one common direction" in both["reading"]


def test_few_rows_need_not_overlap(tmp_path: Path) -> None:
    found = measure(tmp_path, gaussian(30))
    assert found["overlaps"]["welch"] == 0
    assert "need not overlap at all" in found["reading"]


def test_blocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(tmp_path, gaussian())
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 7 * 40)
    blocks = measure(tmp_path, gaussian())
    assert blocks["overlaps"]["mean_squared"] == pytest.approx(whole["overlaps"]["mean_squared"])
    assert blocks["norms"]["mean"] == pytest.approx(whole["norms"]["mean"])


@pytest.mark.parametrize("width", [8, 300])  # of rows that are told apart whole, and by a sketch
def test_rows_that_are_not_used_are_left_out_and_counted(tmp_path: Path, width: int) -> None:
    used = gaussian(500, width)
    padding = gaussian(1, width, seed=3).expand(40, -1) * (1 + 1e-4 * gaussian(40, width, seed=4))
    lost = torch.full((2, width), torch.nan)
    x = torch.cat([used, torch.zeros(3, width), padding, lost])
    found = measure(tmp_path, x)
    assert found["left_out"] == {
        "rows_that_are_not_finite": 2,
        "rows_of_zeros": 3,
        "rows_without_a_token": 0,
        "rows_that_repeat_each_other": 40,
    }
    alone = measure(tmp_path, used)
    assert found["compared"] == 500
    assert found["overlaps"]["mean_squared"] == pytest.approx(alone["overlaps"]["mean_squared"])
    assert found["norms"]["least"] == alone["norms"]["least"]
    told = superposition_section(found).paragraphs[-1]
    assert "500 of 545 rows" in told
    assert "40 rows that repeat each other" in told


def test_rows_beyond_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", gaussian(100).numpy())
    table = open_unembedding(tmp_path / "x.npy")
    table.vectors.tokenless = range(90, 100)
    found = superposition(table, silent)
    assert (found["compared"], found["left_out"]["rows_without_a_token"]) == (90, 10)
    assert found["overlaps"]["rows"] == 90


def test_nothing_to_compare(tmp_path: Path) -> None:
    found = measure(tmp_path, torch.cat([gaussian(1, 3), torch.zeros(9, 3)]))
    assert found["missing"] == "1 rows are too few to compare once 9 rows of zeros are left out"
    assert "Not measured" in superposition_section(found).paragraphs[0]


def test_the_numbers_give_the_picture_again(tmp_path: Path) -> None:
    found = json.loads(json.dumps(measure(tmp_path, gaussian(30)), allow_nan=False))
    assert found["overlaps"]["etf_distance"] is None  # fewer rows than dimensions
    again = as_overlaps(found["overlaps"])
    assert again.mean_squared == found["overlaps"]["mean_squared"]
    assert "<svg" in again.plot().svg


def save_model(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def ask(folder: Path, out: Path, **options: Any) -> DiagnoseConfig:
    settings = {"only": ("superposition",), "sample": 20, "repeats": 2, "out": out, **options}
    return DiagnoseConfig(str(folder), **settings)


def test_of_a_model_the_output_table_is_measured(tmp_path: Path) -> None:
    tensors = {EMBEDDING: gaussian(200, 8) + 3, HEAD: gaussian(200, 8, seed=1)}
    folder = save_model(tmp_path / "m", tensors, hidden_size=8)
    found = diagnose(ask(folder, tmp_path / "out"))
    part = found.document["parts"]["superposition"]
    assert (part["table"], part["tensor"]) == ("output", HEAD)
    assert part["ratio"] == pytest.approx(1, rel=0.05)
    page = found.report.read_text(encoding="utf-8")
    assert "Superposition" in page
    assert "the output table (lm_head.weight)" in page
    rows = diagnose(ask(folder, tmp_path / "rows", tensor=EMBEDDING)).document
    assert rows["parts"]["superposition"]["table"] == "rows"
    assert rows["parts"]["superposition"]["ratio"] > 5


def test_an_output_table_that_was_not_saved_is_missed(tmp_path: Path) -> None:
    """The rest of a diagnosis is about the embedding, and goes on."""
    folder = save_model(tmp_path / "m", {EMBEDDING: gaussian(60, 8)}, tie_word_embeddings=False)
    with pytest.raises(ValueError, match="save it with AutoModelForCausalLM"):
        diagnose(ask(folder, tmp_path / "out"))
    found = diagnose(ask(folder, tmp_path / "out", only=("vectors",))).document
    assert list(found["parts"]) == ["vectors"]


def test_a_projection_is_told(tmp_path: Path) -> None:
    tensors = {EMBEDDING: gaussian(50, 8), "project_out.weight": gaussian(8, 12)}
    folder = save_model(tmp_path / "m", tensors, hidden_size=12, word_embed_proj_dim=8)
    found = diagnose(ask(folder, tmp_path / "out"))
    part = found.document["parts"]["superposition"]
    assert (part["table"], part["width"], part["hidden_width"]) == ("embedding", 8, 12)
    assert "the model's states 12, which are projected" in superposition_section(part).paragraphs[2]


def test_another_output_table_is_measured_again(tmp_path: Path) -> None:
    from tests.data.vectors.tables import save_shards

    out = tmp_path / "out"
    model = tmp_path / "m"
    model.mkdir()
    shards = [{EMBEDDING: gaussian(60, 8)}, {HEAD: gaussian(60, 8, seed=1)}]
    save_shards(model, shards)
    one = diagnose(ask(model, out)).document
    assert diagnose(ask(model, out)).document == one
    save_shards(model, [shards[0], {HEAD: gaussian(60, 8, seed=2)}])  # the same embedding
    two = diagnose(ask(model, out)).document
    assert two["keys"] != one["keys"]
    assert two["parts"]["superposition"]["ratio"] != one["parts"]["superposition"]["ratio"]


def test_it_is_measured_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", gaussian(60, 4).numpy())
    assert "superposition" not in USUAL
    settings = ask(tmp_path / "x.npy", tmp_path / "out")
    part = diagnose(settings).document["parts"]["superposition"]
    kept = diagnose(replace(settings, only=("vectors",))).document["parts"]
    assert kept["superposition"] == part  # what is right stays

    def refuse(source: str) -> None:
        raise VectorsError("it is elsewhere")

    monkeypatch.setattr("beltrami.diagnosis.diagnose.output_table", refuse)
    assert list(diagnose(replace(settings, only=("vectors",))).document["parts"]) == ["vectors"]
    with pytest.raises(ValueError, match="it is elsewhere"):
        diagnose(settings)
