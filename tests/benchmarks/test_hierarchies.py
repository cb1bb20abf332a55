"""The benchmark of hierarchies: what it counts, how it judges, and that it runs."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from beltrami.geometry import Manifold, PoincareBall
from benchmarks import (
    hierarchies,
    hierarchies_cases,
    hierarchies_report,
    hierarchies_timing,
    markers,
)
from benchmarks.hierarchies import Measurement, Options
from benchmarks.hierarchies_cases import Competitor, Problem, Sampled, Trainer
from benchmarks.hierarchies_timing import Finish, Speed

GENSIM = "gensim"


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.load(quick=True)


@pytest.fixture(autouse=True)
def _threads() -> object:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def silent(_: str) -> None:
    pass


# --- competitors ----------------------------------------------------------------------------------


def test_the_full_problem_is_the_published_one() -> None:
    full = Problem.load()
    assert len(full.hierarchy) == 1180
    assert full.pairs == 6540


@pytest.mark.parametrize("competitor", hierarchies_cases.competitors(), ids=hierarchies_cases.names)
def test_every_competitor_trains(problem: Problem, competitor: Competitor) -> None:
    if competitor.name == GENSIM:
        pytest.importorskip(GENSIM, reason="gensim comes with the bench extra")
    trainer = competitor.build(problem, 0, math.inf)
    before, manifold = trainer.points()
    before = before.clone()
    seen = sum(trainer.lap(0.5) for _ in range(2))
    after, _ = trainer.points()
    assert after.shape == (len(problem.hierarchy), hierarchies_cases.DIMENSIONS)
    assert after.dtype == torch.float64
    assert after.isfinite().all()
    manifold.check_point(after)
    assert seen >= 0.1 * problem.pairs
    assert (after != before).any(-1).double().mean() > 0.5


def test_ours_and_geoopt_do_the_same(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same draws and losses, the same steps but for curvature's share in long ones."""
    monkeypatch.setattr(hierarchies_cases, "RATE", 1e-6)
    ours = Sampled(problem, 3, 10, hierarchies_cases.Ours())
    theirs = Sampled(problem, 3, 10, hierarchies_cases.Geoopt())
    torch.testing.assert_close(ours.points()[0], theirs.points()[0], rtol=0, atol=0)
    for burning in (True, False, False):
        assert ours.step(burning) == theirs.step(burning) == 10
    torch.testing.assert_close(ours.points()[0], theirs.points()[0], rtol=1e-6, atol=1e-10)


def test_a_sampled_epoch_has_every_pair_once(problem: Problem) -> None:
    trainer = Sampled(problem, 0, 50, hierarchies_cases.Ours())
    seen = [trainer.step(False) for _ in range(math.ceil(problem.pairs / 50))]
    assert sum(seen) == problem.pairs
    assert not len(trainer.order)


def test_known_pairs_and_the_node_itself_are_no_negatives(problem: Problem) -> None:
    known = Sampled(problem, 0, 10, hierarchies_cases.Ours()).known
    assert known.diagonal().all()
    assert known.sum() == problem.pairs + len(problem.hierarchy)
    u, v = problem.relation.pairs.T
    assert known[u, v].all()


def test_negatives_of_the_burn_in_are_drawn_by_degree(problem: Problem) -> None:
    trainer = Sampled(problem, 0, 10, hierarchies_cases.Ours())
    root = problem.hierarchy.roots.item()
    share = problem.relation.degree[root] / (2 * problem.pairs)
    early, late = ((trainer._negatives(200, b) == root).double().mean() for b in (True, False))
    assert early.item() == pytest.approx(share.item(), rel=0.2)
    assert late.item() == pytest.approx(1 / len(problem.hierarchy), rel=0.5)


# --- timing ---------------------------------------------------------------------------------------


class Clock:
    """A process time that trainers move on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(hierarchies_timing.time, "process_time", lambda: self.now)


class Fake(Trainer):
    """Sees 50 pairs in every lap of `seconds`; knows how it was called."""

    def __init__(self, problem: Problem, clock: Clock, seconds: float) -> None:
        self.problem, self.clock, self.seconds = problem, clock, seconds
        self.progress: list[float] = []

    def lap(self, progress: float) -> int:
        self.progress.append(progress)
        self.clock.now += self.seconds
        return 50

    def points(self) -> tuple[Tensor, Manifold]:
        start = PoincareBall(1.0)
        return start.random(len(self.problem.hierarchy), 2, dtype=torch.float64), start


def fake(clock: Clock, seconds: float, made: list[Fake], **options: object) -> Competitor:
    def build(problem: Problem, seed: int, epochs: float) -> Trainer:
        made.append(Fake(problem, clock, seconds))
        return made[-1]

    return Competitor("fake", f"{seconds:g}", build, **options)


def test_competitors_take_turns(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(monkeypatch), []
    two = [fake(clock, 0.5, made), fake(clock, 2.0, made)]
    found = hierarchies_timing.time_laps(problem, two, 3, silent)
    assert [s.rates for s in found] == [(100.0,) * 3, (25.0,) * 3]
    assert [s.median for s in found] == [100.0, 25.0]
    assert [len(trainer.progress) for trainer in made] == [4, 4]  # and one that does not count


@pytest.mark.parametrize(
    ("lap", "laps"), [(1.0, 10), (4.0, 3), (6.0, 2), (7.0, 1), (30.0, 1)], ids=str
)
def test_a_race_ends_with_its_budget(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, lap: float, laps: int
) -> None:
    clock, made = Clock(monkeypatch), []
    finish = hierarchies_timing.race(problem, fake(clock, lap, made), 1, 10.0, 100.0)
    assert finish.seconds == pytest.approx(laps * lap)
    assert finish.epochs == pytest.approx(50 * laps / problem.pairs)
    assert made[0].progress == pytest.approx([i * lap / 10 for i in range(laps)])
    assert 0 < finish.map < 1
    assert finish.mean_rank > 1
    assert finish.seed == 1


def test_the_recipe_fills_its_budget_with_one_training(problem: Problem) -> None:
    trainer = hierarchies_cases.Recipe(problem, 0, 3.9)
    assert trainer.config.epochs == 3
    assert trainer.lap(0.0) == 3 * problem.pairs
    assert trainer.finished  # its learning rate has fallen to the end
    assert hierarchies_cases.Recipe(problem, 0, 0.2).config.epochs == 1
    endless = hierarchies_cases.Recipe(problem, 0, math.inf)
    assert endless.lap(0.5) == 4 * problem.pairs
    assert not endless.finished


def test_only_the_recipe_has_several_seeds(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, made = Clock(monkeypatch), []
    two = [fake(clock, 1.0, made, seeds=5), fake(clock, 1.5, made)]
    speeds = [Speed("fake", c.how, (1.0,)) for c in two]
    found = hierarchies_timing.race_all(problem, two, speeds, (2.0, 4.0), 3, silent)
    assert [(f.budget, f.how, f.seed) for f in found] == [
        (budget, how, seed) for budget in (2.0, 4.0) for how, seed in
        (("1", 0), ("1", 1), ("1", 2), ("1.5", 0))
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["geoopt", GENSIM])
def test_a_missing_peer_is_a_note(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    if name == GENSIM:
        monkeypatch.setitem(sys.modules, "gensim.models.poincare", None)
        monkeypatch.setitem(sys.modules, "gensim.models", None)
    peer = next(c for c in hierarchies_cases.competitors() if c.name == name)
    speeds = hierarchies_timing.time_laps(problem, [peer], 1, silent)
    assert "is not installed" in speeds[0].note
    assert speeds[0].note.startswith(name)
    finishes = hierarchies_timing.race_all(problem, [peer], speeds, (1.0,), 1, silent)
    assert finishes[0].note == speeds[0].note
    for _, body in (
        hierarchies_report.speed_rows(speeds),
        hierarchies_report.race_rows(finishes),
    ):
        assert speeds[0].note in body[0]


class Broken(Fake):
    def lap(self, progress: float) -> int:
        raise ZeroDivisionError


def test_a_failure_is_a_note_of_a_peer_and_a_crash_of_ours(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    peer = Competitor("x", "", lambda p, s, e: Broken(p, clock, 1.0), peer=True)
    (speed,) = hierarchies_timing.time_laps(problem, [peer], 1, silent)
    assert speed == Speed("x", "", (), "ZeroDivisionError")
    assert hierarchies_timing.race(problem, peer, 0, 1.0, 1.0).note == "ZeroDivisionError"
    ours = replace(peer, peer=False)
    with pytest.raises(ZeroDivisionError):
        hierarchies_timing.time_laps(problem, [ours], 1, silent)
    with pytest.raises(ZeroDivisionError):
        hierarchies_timing.race(problem, ours, 0, 1.0, 1.0)


class Lost(Fake):
    def points(self) -> tuple[Tensor, Manifold]:
        points, manifold = super().points()
        return points * math.nan, manifold


def test_points_that_are_no_numbers_are_a_note(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    lost = Competitor("x", "", lambda p, s, e: Lost(p, clock, 1.0), peer=True)
    assert hierarchies_timing.race(problem, lost, 0, 1.0, 1.0).note == "points are not finite"


# --- verdicts -------------------------------------------------------------------------------------

RECIPE = "beltrami, recipe"


def finishes(
    maps: list[float], rank: float = 1.1, seconds: float = 59.0, budget: float = 60.0
) -> list[Finish]:
    return [
        Finish(RECIPE, "how", budget, seed, seconds, 300.0, value, rank)
        for seed, value in enumerate(maps)
    ]


@pytest.mark.parametrize(
    ("found", "met"),
    [
        (finishes([0.93, 0.96]), True),  # the mean decides
        (finishes([0.93, 0.94]), False),
        (finishes([0.96, 0.96], rank=1.21), False),
        (finishes([0.96, 0.96], seconds=61.0), None),  # too late to count
        (finishes([0.5], seconds=20.0, budget=20.0) + finishes([0.96]), True),
        ([Finish("gensim", "how", 60.0, 0, 59.0, 1.0, 0.99, 1.0)], None),
    ],
)
def test_the_goal(found: list[Finish], met: bool | None) -> None:
    assert hierarchies_report.goal_met(found) is met


def test_tables() -> None:
    speeds = [
        Speed(RECIPE, "how", (100.0, 300.0, 200.0)),
        Speed("geoopt", "batch", (10.0, 20.0, 30.0)),
        Speed("gensim", "batch", (), "gensim is not installed"),
    ]
    header, body = hierarchies_report.speed_rows(speeds)
    assert {len(row) for row in body} == {len(header)}
    assert body[0][2:] == ("200", "100 to 300", "")
    assert body[1][2:] == ("20", "10 to 30", "10.0× as fast")
    found = [*finishes([0.94, 0.96]), Finish("geoopt", "batch", 60.0, 0, 60.2, 40.0, 0.5, 7.126)]
    header, body = hierarchies_report.race_rows(found)
    assert {len(row) for row in body} == {len(header)}
    assert body[0] == ("59.0 of 60", RECIPE, "how", "300", "0.950 ± 0.127", "1.10 ± 0.00", "2")
    assert body[1] == ("60.2 of 60", "geoopt", "batch", "40", "0.500", "7.13", "1")


# --- files and pages ------------------------------------------------------------------------------


def measurement() -> Measurement:
    speeds = [Speed(RECIPE, "how", (2.0, 3.0)), Speed("gensim", "b", (), "is not installed")]
    missing = Finish("gensim", "b", 60.0, 0, note="is not installed")
    return Measurement(speeds, [*finishes([0.95, 0.96]), missing])


def same(a: Finish, b: Finish) -> bool:
    return repr(a) == repr(b)  # nan is not equal to itself


def test_what_is_written_is_read_and_shown(tmp_path: Path) -> None:
    about = hierarchies.describe(Options(commit="abc"))
    path = hierarchies.write(measurement(), about, tmp_path)
    assert "NaN" not in path.read_text()
    json.loads(path.read_text())
    again, found = hierarchies.read(path)
    assert again == about
    assert found.speeds == measurement().speeds
    assert all(map(same, found.finishes, measurement().finishes))
    page = tmp_path / "RESULTS.md"
    page.write_text("<!-- generated: hierarchies cpu -->\n<!-- end: hierarchies cpu -->\n")
    assert hierarchies.render(tmp_path, page)
    text = markers.read(page, "hierarchies cpu")
    for part in ("Commit abc", "1,180 nodes, 6,540 pairs", "The goal is met", "is not installed"):
        assert part in text
    assert not hierarchies.render(tmp_path / "nowhere", page)


def test_a_changed_tree_is_called_dirty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is git's, with its word for uncommitted changes, unless one is named."""
    monkeypatch.setattr(hierarchies.machine, "commit", lambda: "abc-dirty")
    assert hierarchies.describe(Options(quick=True))["commit"] == "abc-dirty"


MEASURED = pytest.mark.skipif(
    not (hierarchies.FOLDER / hierarchies.FILE).exists(),
    reason="needs make bench-hierarchies",
)


def test_the_published_tables_are_those_of_the_file(tmp_path: Path) -> None:
    published = hierarchies.PAGE.read_text(encoding="utf-8")
    assert "<!-- generated: hierarchies cpu -->" in published
    copy = tmp_path / "RESULTS.md"
    copy.write_text(published, encoding="utf-8")
    measured = hierarchies.render(page=copy)
    assert measured == bool(markers.read(hierarchies.PAGE, "hierarchies cpu"))
    assert copy.read_text(encoding="utf-8") == published


@MEASURED
def test_stored_results_are_complete() -> None:
    """At full size, with all competitors, rounds, budgets and seeds."""
    about, found = hierarchies.read(hierarchies.FOLDER / hierarchies.FILE)
    assert about["commit"] != "unknown"
    assert about["command"] == "make bench-hierarchies"
    assert about["pairs"] == 6540
    competitors = hierarchies_cases.competitors()
    assert [(s.competitor, s.how) for s in found.speeds] == [(c.name, c.how) for c in competitors]
    for speed, competitor in zip(found.speeds, competitors, strict=True):
        rounds = len(speed.rates)
        assert rounds == hierarchies.ROUNDS or (competitor.peer and speed.note), speed.competitor
    assert [(f.budget, f.competitor, f.how, f.seed) for f in found.finishes] == [
        (budget, c.name, c.how, seed)
        for budget in hierarchies.BUDGETS
        for c in competitors
        for seed in range(min(c.seeds, hierarchies.SEEDS))
    ]
    assert hierarchies_report.goal_met(found.finishes)


@pytest.mark.parametrize(
    ("options", "published", "command"),
    [
        (Options(), True, "make bench-hierarchies"),
        (Options(rounds=11, seeds=5, budgets=(20.0, 60.0)), True, "make bench-hierarchies"),
        (Options(rounds=1), False, "python -m benchmarks.hierarchies --rounds 1"),
        (Options(quick=True), False, "python -m benchmarks.hierarchies --quick"),
        (
            Options(only="geoopt", seeds=2, budgets=(1.0, 2.5)),
            False,
            'python -m benchmarks.hierarchies --only "geoopt" --seeds 2 --budgets 1 2.5',
        ),
    ],
    ids=["full", "usual numbers", "rounds", "quick", "only"],
)
def test_only_a_complete_run_is_published(
    options: Options,
    published: bool,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a command says in what a run differs from a complete one."""
    rendered = []
    monkeypatch.setattr(hierarchies.machine, "ROOT", tmp_path)
    monkeypatch.setattr(hierarchies, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(hierarchies, "measure", lambda *_: measurement())
    monkeypatch.setattr(hierarchies, "render", lambda: rendered.append(True))
    assert hierarchies.run(options) == 0
    assert hierarchies.run(replace(options, out=tmp_path / "out")) == 0
    assert hierarchies.read(tmp_path / "out" / hierarchies.FILE)[0]["command"] == command
    assert (tmp_path / "results" / hierarchies.FILE).exists() == bool(rendered) == published


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(rounds=0), "--rounds must be at least 1, got 0"),
        (Options(seeds=0), "--seeds must be at least 1, got 0"),
        (Options(budgets=(20.0, -1.0)), "--budgets must be positive numbers of seconds, got -1"),
        (Options(budgets=()), "--budgets must be positive numbers of seconds, got none"),
        (Options(only="nothing", quick=True), "no competitor matches 'nothing'"),
    ],
)
def test_bad_options_are_told(
    options: Options, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hierarchies.run(options) == 2
    assert message in capsys.readouterr().out


def test_the_whole_command_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(quick=True, only="batches of 295", budgets=(0.05,), out=tmp_path)
    assert hierarchies.run(options) == 0
    shown = capsys.readouterr().out
    assert "pairs a second on one thread" in shown
    _, found = hierarchies.read(tmp_path / hierarchies.FILE)
    assert [s.competitor for s in found.speeds] == [RECIPE]
    assert len(found.finishes) == hierarchies.QUICK_SEEDS
    assert all(0 < f.map <= 1 for f in found.finishes)
