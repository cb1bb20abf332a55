from __future__ import annotations

import errno
import json
import math
import shlex
from html import unescape
from pathlib import Path

import pytest

from beltrami.analysis.intervals import Interval
from beltrami.cli.app import parse
from beltrami.recipes import tour_report
from beltrami.recipes.embedding import GEOMETRIES
from beltrami.recipes.tour import LEARNING_RATES, Run, Tour, TourConfig

EDGES = "child,parent\n" + "\n".join(
    f"{kind}{i},{kind}" if i else f"{kind},root"
    for kind in ("<script>", "b", "c")
    for i in range(4)
)


class Witness:
    def __init__(self) -> None:
        self.runs: list[tuple[Run, bool]] = []
        self.steps = 0
        self.planned = 0

    def started(self, runs: int, steps: int) -> None:
        self.planned = runs * steps

    def stepped(self, steps: int) -> None:
        self.steps += steps

    def finished(self, run: Run, reused: bool) -> None:
        self.runs.append((run, reused))

    @property
    def reused(self) -> int:
        return sum(reused for _, reused in self.runs)


@pytest.fixture
def config(tmp_path: Path) -> TourConfig:
    edges = tmp_path / "tree.csv"
    edges.write_text(EDGES)
    return TourConfig(edges=edges, seeds=2, steps=25, out=tmp_path / "out")


def changed(config: TourConfig, **changes: object) -> TourConfig:
    return TourConfig(**{**vars(config), **changes})  # type: ignore[arg-type]


def test_metrics_and_report_are_written(config: TourConfig) -> None:
    witness = Witness()
    result = Tour(config).run(witness)
    assert witness.steps == witness.planned == len(GEOMETRIES) * 4 * config.steps
    metrics = json.loads(result.metrics_path.read_text())
    assert metrics == result.metrics
    assert metrics["schema"] == "beltrami.tour/1"
    assert metrics["tree"]["nodes"] == 13
    assert metrics["settings"]["parameters"] == 26
    assert {(r["geometry"], r["seed"]) for r in metrics["runs"]} == {
        (g, s) for g in GEOMETRIES for s in range(2)
    }
    html = result.report_path.read_text()
    assert "&lt;script&gt;1" in html
    assert "<script>1" not in html
    assert not list(config.out.rglob("*.tmp"))


def test_the_learning_rate_is_the_best_of_seed_0_for_each_geometry(config: TourConfig) -> None:
    metrics = Tour(config).run().metrics
    for geometry in GEOMETRIES:
        swept = {
            row["learning_rate"]: row["loss"]
            for row in metrics["sweep"]
            if row["geometry"] == geometry
        }
        assert tuple(swept) == LEARNING_RATES
        chosen = metrics["chosen_learning_rate"][geometry]
        assert swept[chosen] == min(swept.values())
        used = {r["learning_rate"] for r in metrics["runs"] if r["geometry"] == geometry}
        assert used == {chosen}


def test_the_difference_is_paired_by_seed(config: TourConfig) -> None:
    metrics = Tour(config).run().metrics
    by_seed = {(r["geometry"], r["seed"]): r["map"] for r in metrics["runs"]}
    differences = [by_seed["hyperbolic", s] - by_seed["euclidean", s] for s in range(2)]
    row = metrics["summary"]["map"]["difference"]
    assert row["mean"] == pytest.approx(sum(differences) / 2)
    spread = abs(differences[0] - differences[1])
    assert row["half_width"] == pytest.approx(12.7062 * spread / 2)


def test_resuming_reuses_everything_and_changes_no_byte(config: TourConfig) -> None:
    first = Tour(config).run()
    metrics, report = first.metrics_path.read_bytes(), first.report_path.read_bytes()
    witness = Witness()
    second = Tour(config).run(witness)
    assert witness.reused == len(witness.runs) == 8
    assert second.metrics_path.read_bytes() == metrics
    assert second.report_path.read_bytes() == report


def test_an_interrupted_tour_goes_on_where_it_stopped(config: TourConfig) -> None:
    class Interrupter(Witness):
        def stepped(self, steps: int) -> None:
            super().stepped(steps)
            if len(self.runs) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Tour(config).run(Interrupter())
    assert Tour(config).store.finished() == 3
    assert not (config.out / "metrics.json").exists()
    witness = Witness()
    Tour(config).run(witness)
    assert witness.reused == 3


def test_more_seeds_build_on_the_finished_ones(config: TourConfig) -> None:
    Tour(config).run()
    witness = Witness()
    Tour(changed(config, seeds=3)).run(witness)
    assert witness.reused == 8
    assert len(witness.runs) == 10


@pytest.mark.parametrize("change", [{"steps": 26}, {"curvature": 2.0}, {"edges": None}])
def test_other_settings_are_not_mixed(config: TourConfig, change: dict[str, object]) -> None:
    Tour(config).run()
    other = Tour(changed(config, **change))
    assert other.store.finished() == 0
    assert other.store.others() == 8


def test_fresh_does_everything_again(config: TourConfig) -> None:
    Tour(config).run()
    witness = Witness()
    Tour(changed(config, fresh=True)).run(witness)
    assert witness.reused == 0


def test_one_seed_has_no_interval(config: TourConfig) -> None:
    result = Tour(changed(config, seeds=1)).run()
    assert result.metrics["summary"]["map"]["difference"]["half_width"] is None
    assert "One seed, so no intervals" in result.report_path.read_text()


def test_command_repeats_the_tour(config: TourConfig, tmp_path: Path) -> None:
    assert TourConfig().command() == "beltrami tour"
    spaced = changed(config, out=tmp_path / "a b", fresh=True)
    assert f"--seeds=2 --steps=25 '--out={tmp_path / 'a b'}'" in spaced.command()
    assert "fresh" not in spaced.command()  # it would undo what is to be continued


def test_command_survives_a_path_that_looks_like_an_option() -> None:
    config = TourConfig(edges=Path("-mine.csv"), out=Path("--out"))
    parsed = parse(shlex.split(config.command())[1:])
    assert isinstance(parsed, TourConfig)
    assert (parsed.edges, parsed.out) == (config.edges, config.out)


@pytest.mark.parametrize(
    ("difference", "paragraph"),
    [
        (Interval(-0.2, 0.1), tour_report.FLAT_SQUEEZES),
        (Interval(-0.2, 0.3), tour_report.ABOUT_EQUAL),
        (Interval(0.0, 0.0), tour_report.ABOUT_EQUAL),
        (Interval(0.2, 0.3), tour_report.ABOUT_EQUAL),
        (Interval(0.2, 0.1), tour_report.FLAT_IS_BETTER),
        (Interval(-0.2, None), tour_report.NO_VERDICT),
    ],
)
def test_the_page_claims_what_the_interval_allows(difference: Interval, paragraph: str) -> None:
    assert tour_report.verdict(difference) == paragraph


def test_the_verdict_is_on_the_page(config: TourConfig) -> None:
    result = Tour(config).run()
    said = tour_report.verdict(result.summary["average_distortion"]["difference"])
    others = {tour_report.FLAT_SQUEEZES, tour_report.ABOUT_EQUAL, tour_report.FLAT_IS_BETTER}
    html = unescape(result.report_path.read_text())
    assert said in html
    assert not any(text in html for text in others - {said})
    assert "From a random start the hyperbolic fit" in html


@pytest.mark.parametrize(
    ("mean", "text"), [(0.0004, "0.000"), (-0.0004, "0.000"), (0.25, "+0.250"), (-0.25, "−0.250")]
)
def test_a_difference_that_rounds_to_zero_has_no_sign(mean: float, text: str) -> None:
    columns = {name.lower(): Interval(mean, None) for name in tour_report.COLUMNS}
    (row,) = tour_report.summary_table({"map": columns}, seeds=1).rows
    assert row.values[-1] == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"steps": -1}, "--steps must be at least 1, got -1"),
        ({"curvature": 0.0}, "--curvature must lie between 0.01 and 100, got 0"),
        ({"curvature": math.nan}, "--curvature .* got nan"),
        ({"curvature": math.inf}, "--curvature .* got inf"),
        ({"edges": Path("/nowhere/tree.tsv")}, "cannot read the edge file"),
    ],
)
def test_bad_settings_are_refused_before_any_work(
    config: TourConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Tour(changed(config, **change))
    assert not config.out.exists()


def test_out_must_be_a_folder(config: TourConfig, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="is a file; give a folder"):
        Tour(changed(config, out=file))
    with pytest.raises(ValueError, match="a part of this path is a file"):
        Tour(changed(config, out=file / "below"))


def test_out_must_be_writable(config: TourConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root, as which containers run tests, may write anywhere: so the refusal is staged.
    def refuse(**arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ValueError, match=r"cannot be written \(Permission denied\)"):
        Tour(config)
