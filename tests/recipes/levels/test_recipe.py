from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from beltrami.analysis import level_scores
from beltrami.data import load_hierarchy
from beltrami.embeddings import load_run
from beltrami.models.level_classifier import level_loss
from beltrami.recipes.levels.config import LevelsConfig
from beltrami.recipes.levels.recipe import LevelsRecipe
from beltrami.recipes.levels.samples import load_samples, words
from beltrami.recipes.levels.training import share_of_loss
from beltrami.recipes.registry import create
from tests.recipes.interruption import run_interrupted

TINY = LevelsConfig(
    data="carnivores",
    ngrams=64,
    widths=(8, 4),
    epochs=4,
    batch=32,
    learning_rates=(0.01, 0.03),
    dropout=0.1,
    seeds=2,
    device="cpu",
)


def write_tree(path: Path) -> list[str]:
    """Two levels with three and nine classes, four leaves each; returns the leaves."""
    lines, leaves = [], []
    for a in range(3):
        lines.append(f"top{a}\troot")
        for b in range(3):
            lines.append(f"mid{a}{b}\ttop{a}")
            for c in range(4):
                leaves.append(f"leaf{a}{b}{c}")
                lines.append(f"{leaves[-1]}\tmid{a}{b}")
    path.write_text("\n".join(lines) + "\n")
    return leaves


def test_an_interrupted_run_ends_as_it_would_have(tmp_path: Path) -> None:
    run_result = run_interrupted(TINY, tmp_path, training=2, step=5)
    curved, twin = run_result.arm_results
    assert curved.arm.twin == twin.arm.model == "euclidean"
    parameters = [s.results[0].parameters for s in run_result.arm_results]
    assert max(parameters) <= 1.02 * min(parameters)
    keys = [c.metric.key for c in curved.comparisons]
    assert {"hierarchical_f1", "accuracy_1", "tie", "lca_height", "jaccard"} <= set(keys)
    assert "accuracy_11" not in keys
    embedding = load_run(tmp_path / "broken", model="lorentz")
    assert embedding.points.shape[1] == 4
    hierarchy = load_hierarchy("carnivores")
    leaves = {hierarchy.labels[node] for node in hierarchy.leaves.tolist()}
    assert leaves - set(embedding.labels) == {"fissiped mammal"}  # a leaf without a class
    html = (tmp_path / "broken" / "report.html").read_text()
    assert "Accuracy by level" in html


def test_features_that_say_the_class_are_learned(tmp_path: Path) -> None:
    """With one-hot features of the lower class, both geometries get nearly everything right."""
    from beltrami.recipes.runner import run

    data, features = tmp_path / "tree.tsv", tmp_path / "features.csv"
    leaves = write_tree(data)
    rows = []
    for leaf in reversed(leaves):  # the order of rows does not matter
        place = 3 * int(leaf[4]) + int(leaf[5])
        rows.append(",".join([leaf, *("1" if i == place else "0" for i in range(9))]))
    features.write_text("\n".join(rows) + "\n")
    config = LevelsConfig(
        data=str(data),
        features=features,
        widths=(16, 8),
        epochs=40,
        batch=8,
        learning_rates=(0.03,),
        seeds=1,
        out=tmp_path / "run",
    )
    run_result = run(create(config))
    for arm_result in run_result.arm_results:
        found = arm_result.results[0].metrics
        # a class without a training leaf cannot be found, so not all need be right
        assert found["accuracy_1"] is not None
        assert found["accuracy_1"] > 0.8
        assert found["hierarchical_f1"] is not None
        assert found["hierarchical_f1"] > 0.7


def test_tree_errors_are_of_the_lowest_classes(tmp_path: Path) -> None:
    data = tmp_path / "tree.tsv"
    write_tree(data)
    recipe = create(LevelsConfig(data=str(data), ngrams=8))
    assert isinstance(recipe, LevelsRecipe)
    targets = recipe.samples.labels.targets
    assert recipe._tree_errors(targets, targets) == {"tie": 0.0, "lca_height": 1.0, "jaccard": 1.0}
    wrong = targets.clone()
    wrong[:, 1] = (targets[:, 1] // 3) * 3 + (targets[:, 1] + 1) % 3  # a sibling
    found = recipe._tree_errors(wrong, targets)
    # up to the common parent and down; {root, top} of {root, top, mid, other mid}
    assert found == {"tie": 2.0, "lca_height": 2.0, "jaccard": 0.5}


def test_the_tree_errors_are_told_the_depth(tmp_path: Path) -> None:
    """What is found below a leaf's own depth changes hierarchical F1 and nothing else."""
    data = tmp_path / "tree.tsv"
    write_tree(data)
    with data.open("a") as file:
        file.writelines(f"shallow{i}\ttop{i}\n" for i in range(3))
    recipe = create(LevelsConfig(data=str(data), ngrams=8))
    assert isinstance(recipe, LevelsRecipe)
    targets = recipe.samples.labels.targets
    assert (targets[:, 1] < 0).sum() == 3
    deeper = targets.clamp(min=0)
    assert recipe._tree_errors(deeper, targets) == recipe._tree_errors(targets, targets)
    found = level_scores(deeper, targets)
    assert found.micro_f1 == pytest.approx(2 * 75 / (75 + 78))
    assert found.accuracy == (1.0, 1.0)


def test_shares_of_the_loss_sum_up_to_it() -> None:
    torch.manual_seed(0)
    scores = [torch.randn(9, k, dtype=torch.float64) for k in (2, 5, 3)]
    targets = torch.stack([torch.randint(-1, s.shape[1], (9,)) for s in scores], dim=1)
    targets[:, 2] = -1  # a level at which no row has a class
    parts = [torch.arange(9)[0::2], torch.arange(9)[1::2]]
    found = sum(share_of_loss([s[p] for s in scores], targets[p], targets) for p in parts)
    torch.testing.assert_close(found, level_loss(scores, targets))


def test_parts_are_disjoint_and_complete() -> None:
    recipe = create(TINY)
    assert isinstance(recipe, LevelsRecipe)
    parts = recipe.samples.parts(1)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(recipe.samples)))
    assert min(map(len, parts)) > 0
    assert not torch.equal(parts[0], recipe.samples.parts(2)[0])


@pytest.mark.parametrize(
    ("label", "text"),
    [("fox_terrier.n.01", "fox terrier"), ("st._bernard", "st. bernard"), ("a.n.b", "a.n.b")],
)
def test_labels_become_words(label: str, text: str) -> None:
    assert words(label) == text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": 0}, "--levels must be at least 1, got 0"),
        ({"ngrams": 0}, "--ngrams must be at least 1"),
        ({"widths": ()}, "--widths"),
        ({"dropout": -0.1}, "--dropout must be at least 0"),
        ({"weight_decay": float("nan")}, "--weight-decay must be"),
        ({"learning_rates": (0.1, 0.1)}, "--learning-rates must not repeat a value"),
        ({"features": Path("features.npy")}, "must be a .csv or .tsv table"),
        ({"features": Path("no-such.csv")}, "no-such.csv"),
        (
            {"features": Path("f.csv"), "ngrams": 64},
            "--ngrams 64 is about names, which --features f.csv replaces",
        ),
        ({"ngrams": 1 << 27}, r"too many for --ngrams 134217728.* by --root LABEL"),
        ({"batch": 1 << 26}, r"classes, too many: the scores of 67,108,864 .* by --root LABEL"),
        ({"data": ""}, "--data is empty"),
    ],
)
def test_bad_options_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create(LevelsConfig(**{"data": "carnivores", **changes}))  # type: ignore[arg-type]


def test_features_without_a_leaf_are_refused(tmp_path: Path) -> None:
    data, features = tmp_path / "tree.tsv", tmp_path / "features.tsv"
    leaves = write_tree(data)
    features.write_text("".join(f"{leaf}\t1.0\n" for leaf in leaves[1:]))
    with pytest.raises(ValueError, match="no row for 1 of 36 leaves, the first is 'leaf000'"):
        create(LevelsConfig(data=str(data), features=features))


def test_a_small_taxonomy_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "tree.tsv"
    data.write_text("a\troot\nb\troot\nc\ta\nd\tb\n")
    with pytest.raises(ValueError, match="has 2 leaves below its first level; at least 10"):
        create(LevelsConfig(data=str(data)))


def test_levels_may_be_ranks(tmp_path: Path) -> None:
    data = tmp_path / "t.csv"
    rows = [f"life,f{i % 3},g{i % 6},s{i}" for i in range(24)]
    data.write_text("\n".join(["kingdom,family,genus,species", *rows]))
    config = LevelsConfig(data=str(data), ngrams=8, ranks=("genus",))
    samples = load_samples(config)
    assert samples.labels.sizes == (6,)
    assert samples.digest() != load_samples(replace(config, ranks=("family",))).digest()
    assert load_samples(replace(config, ranks=())).labels.sizes == (3, 6)
    metric = {m.key: m for m in create(config).metrics}
    assert metric["accuracy_1"].title == "Accuracy, genus"  # 2 below the root
    assert "below the root" not in metric["accuracy_1"].hint
    with pytest.raises(ValueError, match="--levels 2 counts from the root, --ranks genus names"):
        create(replace(config, levels=2))
    with pytest.raises(ValueError, match="has no rank 'tribe'"):
        create(replace(config, ranks=("tribe",)))
