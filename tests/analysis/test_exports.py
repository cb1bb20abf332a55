"""The one place recipes import from has everything, and every result gives plain floats."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from beltrami import analysis
from beltrami.data import load_hierarchy
from beltrami.geometry import Lorentz


def test_all_names_are_there_and_all_results_are_frozen() -> None:
    for name in analysis.__all__:
        member = getattr(analysis, name)
        if dataclasses.is_dataclass(member):
            assert member.__dataclass_params__.frozen, name


def test_a_taxonomy_is_measured_end_to_end() -> None:
    taxonomy = load_hierarchy("carnivores")
    manifold = Lorentz(1.0)
    v = torch.randn(len(taxonomy), 5)
    points = manifold.exp0((1.0 + taxonomy.depth)[:, None] * v / v.norm(dim=1, keepdim=True))
    tables = analysis.class_tables(taxonomy)
    guesses = torch.randint(len(tables.classes), (50,))
    depth = analysis.depth_correlation(taxonomy.depth, analysis.radii(points, manifold))
    results = [
        analysis.reconstruct_points(points, manifold, taxonomy.closure()),
        analysis.distortion_of_points(points, manifold, taxonomy.hops),
        depth,
        analysis.tree_errors(tables, guesses, guesses.flip(0)),
    ]
    assert depth.spearman > 0.85  # each node was put at its depth, up to rounding
    for result in results:
        numbers = result.as_dict()
        assert numbers
        assert all(type(value) is float for value in numbers.values())
        json.dumps(numbers, allow_nan=False)


def test_functions_are_exported_even_where_their_module_has_the_same_name() -> None:
    import beltrami.analysis.hubness  # noqa: F401  (binds the name of the package to the module)

    assert all(callable(getattr(analysis, name)) for name in ("distortion", "hubness", "hmds"))


def test_the_former_home_still_works_and_says_where_the_names_are() -> None:
    from beltrami.analysis import hierarchy

    with pytest.warns(DeprecationWarning, match="import radii from beltrami.analysis;"):
        assert hierarchy.radii is analysis.radii
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hierarchy.nothing
