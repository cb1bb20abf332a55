"""Whole diagnoses: what they find of known data, what they write, and what is not done twice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.analysis.null_models import tree_distances
from beltrami.geometry import lorentz
from beltrami.recipes.diagnosis.config import PARTS, DiagnoseConfig
from beltrami.recipes.diagnosis.diagnose import diagnose
from beltrami.report.text import markup


class Watch:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.parts: dict[str, bool] = {}
        self.shares: list[float] = []

    def started(self, what: str) -> None:
        self.shares.append(0.0)

    def moved(self, share: float) -> None:
        assert self.shares[-1] <= share <= 1 + 1e-9
        self.shares[-1] = share

    def finished(self, what: str, reused: bool) -> None:
        self.parts[what] = reused


def config(tmp_path: Path, values: np.ndarray, **options: Any) -> DiagnoseConfig:
    path = tmp_path / "x.npy"
    np.save(path, values)
    small = {"sample": 120, "repeats": 3, "out": tmp_path / "out", **options}
    return DiagnoseConfig(str(path), **small)


def noise(rows: int = 400, width: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, width))


def test_noise_is_no_tree(tmp_path: Path) -> None:
    found = diagnose(config(tmp_path, noise(), only=("tree-likeness", "curvature"))).document
    assert found["verdict"]["level"] == "none"
    assert not found["verdict"]["worth_trying"]
    excess = found["parts"]["tree-likeness"]["excess_over_noise"]
    assert abs(excess["mean"]) < 0.05


def test_noise_of_more_dimensions_than_points_is_no_tree_either(tmp_path: Path) -> None:
    found = diagnose(config(tmp_path, noise(300, 600), only=("tree-likeness",), sample=60)).document
    assert found["verdict"]["level"] == "none"
    assert abs(found["parts"]["tree-likeness"]["excess_over_noise"]["mean"]) < 0.02


def test_a_part_of_another_kind_of_data_does_not_stay(tmp_path: Path) -> None:
    settings = config(tmp_path, tree_distances(60).numpy(), only=("vectors",), kind="vectors")
    diagnose(settings)
    again = diagnose(replace(settings, kind="distances", only=("tree-likeness",))).document
    assert list(again["parts"]) == ["tree-likeness"]


def test_what_was_missing_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(tmp_path, noise(), only=("words",))
    assert "missing" in diagnose(settings).document["parts"]["words"]
    watch = Watch()
    diagnose(settings, watch)
    assert watch.parts["words"] is False


def test_a_tree_is_one(tmp_path: Path) -> None:
    settings = config(
        tmp_path, tree_distances(120).numpy(), only=("tree-likeness", "curvature"), repeats=6
    )
    found = diagnose(settings).document
    assert found["source"]["kind"] == "distances"
    part = found["parts"]["tree-likeness"]
    assert part["relative_delta"]["data"]["mean"] < 1e-12
    assert part["way_from_noise_to_a_tree"]["mean"] == pytest.approx(1)
    assert found["verdict"]["level"] == "strong"
    assert found["verdict"]["worth_trying"]


def test_hyperbolic_points_have_the_curvature_they_were_drawn_with(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    angle = 2 * torch.pi * torch.rand(150, generator=g, dtype=torch.float64)
    radius = 5 * torch.rand(150, generator=g, dtype=torch.float64).sqrt()
    points = torch.sinh(radius).unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
    d = lorentz.pairwise_dist(points, points, 1.0).numpy()
    settings = config(tmp_path, d, only=("curvature",), sample=150)
    part = diagnose(settings).document["parts"]["curvature"]
    assert part["best_dimensions"] == 2
    assert 0.6 < part["best_c"] < 1.6


def test_every_number_of_the_page_is_in_the_document(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    rows = noise(60, 4)
    lines = [f"<w{i}>," + ",".join(f"{v:.5f}" for v in row) for i, row in enumerate(rows)]
    path.write_text("\n".join(["name,a,b,c,d", *lines]), encoding="utf-8")
    counts = tmp_path / "f.csv"
    counts.write_text("\n".join(f"<w{i}>,{1000 // (i + 1)}" for i in range(60)), encoding="utf-8")
    settings = DiagnoseConfig(
        str(path), only=PARTS, sample=40, repeats=2, frequencies=counts, out=tmp_path / "out"
    )
    found = diagnose(settings)
    assert found.document == json.loads(found.path.read_text(encoding="utf-8"))
    page = found.report.read_text(encoding="utf-8")
    assert set(found.document["parts"]) == {
        "tree-likeness", "curvature", "products", "pictures", "vectors", "superposition", "words"
    }  # fmt: skip
    assert "<w1>" not in page
    assert markup("<w1>") in page
    assert "//" not in re.sub(
        r'xmlns="[^"]*"', "", page[page.index("<main>") :].split("<script>")[0]
    )
    known = set(_numbers(found.document))
    body = page[page.index("<main>") : page.index("</main>")]
    cells = re.findall(r"<td>([^<]*)</td>", body)
    shown = [float(n.replace("−", "-").replace(",", "")) for c in cells for n in _NUMBER.findall(c)]
    assert len(shown) > 80
    for value in shown:
        assert any(_rounds_to(exact, value) for exact in known), value


_NUMBER = re.compile(r"−?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in _numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in _numbers(v)]
    if isinstance(value, str):
        return [float(n) for n in re.findall(r"\d+", value)[:50] if len(n) < 15]
    return [] if value is None or isinstance(value, bool) else [float(value)]


def _rounds_to(exact: float, shown: float) -> bool:
    # Half widths of errors are shown as 1.96 times the error, shares as per cent.
    near = (exact, 100 * exact, 1.96 * exact)
    return any(abs(n - shown) <= 6e-3 * max(abs(shown), 0.1) for n in near)


def test_finished_parts_are_not_computed_again(tmp_path: Path) -> None:
    settings = config(tmp_path, noise(), only=("tree-likeness",))
    first, again, more, other = Watch(), Watch(), Watch(), Watch()
    one = diagnose(settings, first)
    two = diagnose(settings, again)
    assert first.parts["tree-likeness"] is False
    assert again.parts["tree-likeness"] is True
    assert one.document["parts"] == two.document["parts"]
    diagnose(replace(settings, only=("tree-likeness", "curvature")), more)
    assert more.parts == {"reading": False, "tree-likeness": True, "curvature": False}
    fewer = diagnose(replace(settings, only=("curvature",))).document
    assert list(fewer["parts"]) == ["tree-likeness", "curvature"]  # what is right stays
    changed = diagnose(replace(settings, seed=5), other).document
    assert list(changed["parts"]) == ["tree-likeness"]  # and what is not goes
    assert other.parts["tree-likeness"] is False
    assert all(share == pytest.approx(1) for share in first.shares[1:])


def test_other_data_do_not_replace_a_diagnosis(tmp_path: Path) -> None:
    settings = config(tmp_path, noise(), only=("tree-likeness",))
    before = diagnose(settings).document
    config(tmp_path, noise(300))
    with pytest.raises(ValueError, match="other data; give --fresh"):
        diagnose(settings)
    kept = json.loads((tmp_path / "out/diagnosis.json").read_text(encoding="utf-8"))
    assert kept == before
    assert diagnose(replace(settings, fresh=True)).document["source"]["points"] == 300


def test_a_file_that_is_no_diagnosis_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diagnosis.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match="is no diagnosis"):
        diagnose(config(tmp_path, noise(), only=("tree-likeness",), fresh=True))
    assert (tmp_path / "out/diagnosis.json").read_text(encoding="utf-8") == "[]"


def test_what_an_interrupted_diagnosis_had_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path, noise(), only=("tree-likeness", "curvature"))

    def stop(*arguments: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("beltrami.recipes.diagnosis.diagnose.curvature", stop)
        with pytest.raises(KeyboardInterrupt):
            diagnose(settings)
    watch = Watch()
    diagnose(settings, watch)
    assert watch.parts == {"reading": False, "tree-likeness": True, "curvature": False}


@pytest.mark.parametrize("width", [1, 3])
def test_points_that_all_coincide(tmp_path: Path, width: int) -> None:
    with pytest.raises(ValueError, match=r"all 30 points of x\.npy coincide"):
        diagnose(config(tmp_path, np.ones((30, width))))


def test_as_few_points_as_there_can_be(tmp_path: Path) -> None:
    found = diagnose(config(tmp_path, noise(4, 3), repeats=2)).document
    assert found["parts"]["tree-likeness"]["compared"] == 4


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sample": 3}, "--sample must be at least 20, got 3"),
        ({"repeats": 1}, "--repeats must be at least 2"),
        ({"only": ()}, "--only is empty"),
        ({"frequencies": Path("nowhere.csv")}, "--frequencies nowhere.csv is no file"),
        ({"texts": Path("nowhere.txt")}, "--texts nowhere.txt is no file"),
        ({"prompts": 0}, "--prompts must be at least 1"),
        ({"texts": Path("a"), "task": Path("b")}, "give one"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        diagnose(DiagnoseConfig(**options))


def test_the_command_repeats_the_diagnosis() -> None:
    settings = DiagnoseConfig("a b.npy", sample=50, only=("words", "vectors"), metric="angle")
    assert settings.command() == (
        "beltrami diagnose 'a b.npy' --metric=angle --only words vectors --sample=50"
    )
    assert DiagnoseConfig().command() == "beltrami diagnose"
    assert DiagnoseConfig("/x/a b.npy").folder == Path("runs/diagnose-a_b.npy")
