from __future__ import annotations

from beltrami.recipes.pages import run_facts, training_figure
from beltrami.recipes.recipe import Arm, Trial
from beltrami.recipes.results import ArmResult, RunResult, TrialResult

DOCUMENT = {
    "settings": {"seeds": 2},
    "environment": {"device": "cpu", "processes": 1, "threads": 2, "torch": "2.9"},
}


def arm_result(
    model: str, parameters: int, losses: list[float], group: str = "2 dimensions"
) -> ArmResult:
    history = [{"step": i + 1, "loss": loss} for i, loss in enumerate(losses)]
    result = TrialResult(Trial(model, group, 0, {}), {}, {}, history, parameters, 2.0)
    return ArmResult(Arm(model, group, {}), {"learning_rate": 0.1}, [result], [])


def test_facts_of_a_run() -> None:
    run_result = RunResult([arm_result("a", 1200, []), arm_result("b", 1200, [])], DOCUMENT, "")
    facts = dict(run_facts(run_result, {"a": "A"}))
    assert facts["Parameters"] == "1,200 each (2 dimensions)"
    assert facts["Chosen on the first seed"] == (
        "A (2 dimensions) learning rate 0.1; b (2 dimensions) learning rate 0.1"
    )
    assert facts["Time a training"] == "A (2 dimensions) 2.0 s; b (2 dimensions) 2.0 s"
    assert facts["Seeds"] == "2"
    assert "cpu" in facts["Machine"]


def test_parameters_that_differ_or_are_none() -> None:
    run_result = RunResult([arm_result("a", 10, []), arm_result("b", 12, [])], DOCUMENT, "")
    assert dict(run_facts(run_result, {}))["Parameters"] == "a 10, b 12 (2 dimensions)"
    run_result = RunResult([arm_result("placed", 0, [], group="")], DOCUMENT, "")
    assert dict(run_facts(run_result, {}))["Parameters"] == "none trained"


def test_the_training_of_those_that_were_trained() -> None:
    trained = [arm_result("<a>", 10, [3.0, 2.0, 1.0]), arm_result("placed", 0, [])]
    figure = training_figure(RunResult(trained, DOCUMENT, ""), {})
    assert "&lt;a&gt;" in figure.svg
    assert "placed" not in figure.svg
    assert figure.caption.startswith("2 dimensions, first seed")
    below_zero = training_figure(RunResult([arm_result("a", 1, [1.0, -1.0])], DOCUMENT, ""), {})
    assert "<svg" in below_zero.svg
