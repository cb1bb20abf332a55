from __future__ import annotations

from collections import Counter

import pytest
import torch

from beltrami.data.hierarchy import Hierarchy
from beltrami.data.load import load_hierarchy
from beltrami.data.taxonomy_questions import plain_name, taxonomy_facts, taxonomy_questions


@pytest.fixture(scope="module", name="mammals")
def fixture_mammals() -> Hierarchy:
    return load_hierarchy("wordnet-mammals")


def test_answers_are_true(mammals: Hierarchy) -> None:
    names = [plain_name(label) for label in mammals.labels]
    above = {(names[a], names[b]) for a, b in mammals.closure().tolist()}
    for question in taxonomy_questions(mammals, 800, seed=1):
        node, top = question.question.removeprefix("Is ").removesuffix("?").split(" a kind of ")
        assert ((node, top) in above) == (question.answer == "yes")
        assert question.solution.endswith(f"#### {question.answer}")
        if question.answer == "yes":
            assert len(question.solution.splitlines()) == question.steps + 1
            assert question.solution.startswith(f"{node} is a kind of ")


def test_yes_and_no_are_even_at_every_step(mammals: Hierarchy) -> None:
    count = Counter((q.steps, q.answer) for q in taxonomy_questions(mammals, 600, most_steps=3))
    assert {steps for steps, _ in count} == {1, 2, 3}
    for steps in (1, 2, 3):
        assert count[steps, "yes"] == count[steps, "no"]


def test_questions_differ_and_a_seed_says_it_all(mammals: Hierarchy) -> None:
    asked = taxonomy_questions(mammals, 500, seed=2)
    assert len({q.key for q in asked}) == 500
    assert asked == taxonomy_questions(mammals, 500, seed=2)
    assert asked != taxonomy_questions(mammals, 500, seed=3)


def test_a_small_taxonomy_has_few_and_names_that_repeat_are_not_asked_about() -> None:
    edges = torch.tensor([[1, 0], [2, 0], [3, 1], [4, 1], [5, 2]])
    tree = Hierarchy("tree", ("top", "a.n.01", "b_b", "c", "d", "c.n.02"), edges)
    asked = taxonomy_questions(tree, 100)
    assert 0 < len(asked) < 20
    assert not any("Is c " in q.question or "of c?" in q.question for q in asked)
    assert "b b is a kind of top." in taxonomy_facts(tree)
    with pytest.raises(ValueError, match="at least 2"):
        taxonomy_questions(tree, 1)
