"""Whole diagnoses: what they find of known data, what they write, and what is not done twice."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from beltrami.analysis.null_models import tree_distances
from beltrami.diagnosis.config import PARTS, DiagnoseConfig
from beltrami.diagnosis.diagnose import Diagnosis, diagnose
from beltrami.geometry import lorentz
from beltrami.report.text import markup
from tests.diagnosis.page_numbers import SECTIONS, cell_numbers, unknown_numbers


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


@pytest.mark.parametrize("kind", ["one row far out", "heavy tails"])
def test_unequal_lengths_are_no_tree(tmp_path: Path, kind: str) -> None:
    x = noise(500, 32)
    if kind == "one row far out":
        x[0] *= 30
    else:
        x *= np.random.default_rng(1).lognormal(sigma=0.8, size=(500, 1))
    settings = config(tmp_path, x, only=("tree-likeness",), sample=500, repeats=4)
    found = diagnose(settings).document
    part = found["parts"]["tree-likeness"]
    delta = {name: value["mean"] for name, value in part["relative_delta"].items()}
    assert delta["data"] < 0.75 * delta["noise"]  # which alone would call it tree-like
    assert part["nearest_noise"] == "noise of equal lengths"
    assert found["verdict"]["level"] in ("none", "little")


def test_prompts_by_another_method_do_not_stay(tmp_path: Path) -> None:
    settings = config(tmp_path, noise(), only=("tree-likeness",))
    path = diagnose(settings).path
    before = json.loads(path.read_text(encoding="utf-8"))
    before["parts"]["prompts"] = {"values": []}  # as an older version wrote it
    before["keys"]["prompts"], before["method"] = "k", before["method"] - 1
    path.write_text(json.dumps(before), encoding="utf-8")
    assert list(diagnose(settings).document["parts"]) == ["tree-likeness"]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    x = noise()
    x[3, 2] = np.nan
    found = diagnose(config(tmp_path, x, only=("tree-likeness",)))
    assert found.document["notes"] == ["1 of 400 rows are not finite: left out"]
    assert "1 of 400 rows are not finite" in found.report.read_text(encoding="utf-8")


def test_few_points_are_told(tmp_path: Path) -> None:
    found = diagnose(config(tmp_path, noise()[:19], only=("tree-likeness",)))
    few = "19 points are few: with less than 20 no difference to noise can be told"
    assert found.document["notes"] == [few]


def test_matrices_that_are_no_distances_get_no_verdict(tmp_path: Path) -> None:
    d = tree_distances(60).numpy() ** 2
    found = diagnose(config(tmp_path, d, only=("tree-likeness",))).document
    assert found["verdict"]["level"] == "unclear"
    assert "of the triangles violate the triangle inequality" in found["verdict"]["answer"]
    assert len(found["notes"]) == 2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"only": ("words", "vectors")}, "none of these can be computed of x.npy"),
        ({"metric": "angle"}, "--metric does not apply: x.npy is not a table of vectors"),
        ({"frequencies": Path("f.csv")}, "--frequencies does not apply: x.npy is not a table"),
        ({"layer": 3}, "--layer does not apply: there are no prompts"),
    ],
)
def test_options_that_do_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.csv").write_text("a,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        diagnose(config(tmp_path, tree_distances(60).numpy(), **options))


def test_options_of_parts_that_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.csv").write_text("a,1\n", encoding="utf-8")
    some = {"only": ("tree-likeness",), "frequencies": Path("f.csv")}
    with pytest.raises(ValueError, match="--frequencies is for the part words"):
        diagnose(config(tmp_path, noise(), **some))
    Path("edges.tsv").write_text("a\tb\nc\tb\nd\tb\ne\td\n", encoding="utf-8")
    with pytest.raises(ValueError, match="--label does not apply: edges is a graph"):
        diagnose(DiagnoseConfig("edges.tsv", label="x", out=tmp_path / "graph"))


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
    written = diagnose(settings)
    found = written.document
    assert unknown_numbers(written.report.read_text(encoding="utf-8"), found) == []
    assert found["source"]["kind"] == "distances"
    part = found["parts"]["tree-likeness"]
    assert part["relative_delta"]["data"]["mean"] < 1e-12
    assert part["tree_likeness_score"]["mean"] == pytest.approx(1)
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """All parts of a small table whose labels have no digits."""
    folder = tmp_path_factory.mktemp("whole")
    names = [f"<{a}{b}>" for a in "abcdef" for b in "ghijklmnop"]
    table, counts = folder / "v.csv", folder / "f.csv"
    rows = [",".join(f"{v:.5f}" for v in row) for row in noise(len(names), 4)]
    lines = [f"{name},{row}" for name, row in zip(names, rows, strict=True)]
    table.write_text("\n".join(["name,a,b,c,d", *lines]), encoding="utf-8")
    lines = [f"{name},{1000 // (i + 1)}" for i, name in enumerate(names)]
    counts.write_text("\n".join(lines), encoding="utf-8")
    return diagnose(
        DiagnoseConfig(
            str(table), only=PARTS, sample=40, repeats=2, frequencies=counts, out=folder / "out"
        )
    )


@pytest.mark.slow
def test_a_page_of_all_parts(whole: Diagnosis) -> None:
    assert whole.document == json.loads(whole.path.read_text(encoding="utf-8"))
    page = whole.report.read_text(encoding="utf-8")
    assert set(whole.document["parts"]) == {
        "tree-likeness", "curvature", "products", "pictures", "vectors", "superposition", "words"
    }  # fmt: skip
    assert "<ag>" not in page
    assert markup("<ag>") in page
    assert "//" not in re.sub(
        r'xmlns="[^"]*"', "", page[page.index("<main>") :].split("<script>")[0]
    )


def test_every_number_of_the_page_is_in_the_document(whole: Diagnosis) -> None:
    page = whole.report.read_text(encoding="utf-8")
    assert len(cell_numbers(page, whole.document)) > 80
    assert unknown_numbers(page, whole.document) == []
    for name, values in whole.document["parts"]["tree-likeness"]["values"].items():
        cells = "".join(f"<td>{value:.4f}</td>" for value in values)
        assert f'<th scope="row">{name}</th>{cells}' in page


@pytest.mark.parametrize("tag", ["td", "p", "figcaption", "small"])
def test_numbers_that_are_not_in_the_document_are_noticed(whole: Diagnosis, tag: str) -> None:
    page, draw = whole.report.read_text(encoding="utf-8"), random.Random(0)
    headings = [h for h, part in SECTIONS.items() if part in whole.document["parts"]]
    for heading in ("The numbers", *headings):
        more = "".join(f"<{tag}>{draw.random():.3f}</{tag}>" for _ in range(100))
        changed = page.replace(f"<h2>{heading}</h2>", f"<h2>{heading}</h2>{more}")
        assert len(unknown_numbers(changed, whole.document)) > 85, heading  # some are by chance


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
    with pytest.raises(ValueError, match="is not a diagnosis"):
        diagnose(config(tmp_path, noise(), only=("tree-likeness",), fresh=True))
    assert (tmp_path / "out/diagnosis.json").read_text(encoding="utf-8") == "[]"


def test_what_an_interrupted_diagnosis_had_finished_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path, noise(), only=("tree-likeness", "curvature"))

    def stop(*arguments: object) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("beltrami.diagnosis.diagnose.curvature", stop)
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
        ({"frequencies": Path("nowhere.csv")}, "--frequencies nowhere.csv is not a file"),
        ({"texts": Path("nowhere.txt")}, "--texts nowhere.txt is not a file"),
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
