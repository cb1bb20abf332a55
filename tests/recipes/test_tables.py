from __future__ import annotations

import math

from beltrami.analysis.intervals import Interval
from beltrami.recipes.recipe import Arm, Metric, Trial
from beltrami.recipes.results import ArmResult, Comparison, RunResult, TrialResult
from beltrami.recipes.tables import difference_cell, result_tables, show

MAP = Metric("map", "MAP", "1 is perfect", "higher")
LOSS = Metric("loss", "Loss", "of the last step", None)


def arm_result(
    model: str, twin: str | None, *comparisons: Comparison, group: str = "g"
) -> ArmResult:
    result = TrialResult(Trial(model, group, 0, {}), {}, {}, [], 1, 1.0)
    return ArmResult(Arm(model, group, {}, twin), {}, [result, result], comparisons)


def test_a_column_each_and_one_for_the_difference() -> None:
    run_result = RunResult(
        [
            arm_result("a", "b", Comparison(MAP, Interval(0.5, 0.1), Interval(0.2, 0.1))),
            arm_result("b", None, Comparison(MAP, Interval(0.3, 0.1), None)),
        ],
        {},
        "",
    )
    (table,) = result_tables(run_result, {"a": "A", "b": "B"})
    assert table.columns == ("A", "A − B", "B")
    (row,) = table.rows
    assert list(map(str, row.values)) == [
        "0.500 ± 0.100", "+0.200 ± 0.100 (better)", "0.300 ± 0.100",
    ]  # fmt: skip
    assert table.caption.startswith("g: mean ± 95% t-interval over 2 seeds")


def test_a_metric_of_one_model_alone_has_its_row() -> None:
    value = Interval(0.5, None)
    for order in (1, -1):
        arm_results = [
            arm_result("a", None, Comparison(MAP, value, None), Comparison(LOSS, value, None)),
            arm_result("b", None, Comparison(MAP, value, None)),
        ][::order]
        (table,) = result_tables(RunResult(arm_results, {}, ""), {})
        assert [row.name for row in table.rows] == ["MAP", "Loss"]
        assert sorted(map(str, table.rows[1].values)) == ["0.500", "–"]


def test_a_group_without_a_name_has_a_caption() -> None:
    value = Comparison(MAP, Interval(0.5, None), None)
    (table,) = result_tables(RunResult([arm_result("a", None, value, group="")], {}, ""), {})
    assert table.caption.startswith("Mean ± 95%")


def test_signs_and_infinities() -> None:
    def cell(mean: float) -> str:
        return str(difference_cell(Comparison(MAP, Interval(1, None), Interval(mean, None))))

    assert [cell(x) for x in (0.5, -0.5, 0.0, 1e-9, -1e-9)] == [
        "+0.500", "−0.500", "0.000", "0.000", "0.000",
    ]  # fmt: skip
    assert cell(math.inf) == str(difference_cell(Comparison(MAP, Interval(1, None), None))) == "–"
    assert show(Interval(math.inf, None), 3) == "∞"
