"""Draw the pictures of docs/gallery.md, by the functions that draw the pages of runs.

    python -m scripts.make_gallery            # all; `make gallery`
    python -m scripts.make_gallery sweep      # one of them

Runs are kept below runs/gallery, so that a second call only draws what is there.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from beltrami.data import load_hierarchy
from beltrami.data.atomic import write_atomically
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.diagnose import diagnose
from beltrami.recipes.hierarchy import HierarchyEmbedding
from beltrami.recipes.hierarchy.config import HierarchyConfig
from beltrami.recipes.hierarchy.report import unit_disk
from beltrami.recipes.registry import create
from beltrami.recipes.runner import run
from beltrami.recipes.superposition.config import SuperpositionConfig
from beltrami.report.charts import Estimate, Group, Series, dot_chart, line_chart
from beltrami.report.disk import disk_svg
from beltrami.report.page import Page

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs/figures"
RUNS = ROOT / "runs/gallery"

ROWS = 600  # of each table of vectors
GAMMAS = (-1.0, -0.6, -0.3, -0.1, 0.0, 0.1, 0.3, 0.6, 1.0)
WIDTHS = (3, 6, 12, 24, 48)
ADAPTER_STEPS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/gallery.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PICTURES)}")
    names = parser.parse_args().names or list(PICTURES)
    if unknown := set(names) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)  # sums in a fixed order
    for name in names:
        began = time.monotonic()
        path = FIGURES / f"gallery-{name}.svg"
        write_atomically(path, as_picture(PICTURES[name]()))
        size, seconds = path.stat().st_size / 1024, time.monotonic() - began
        print(f"{path.relative_to(ROOT)}: {size:.0f} KiB, {seconds:.0f} s", flush=True)


def as_picture(svg: str) -> str:
    """On white in every theme: a page of the documentation cannot tell a picture which it has."""
    light = svg.replace("screen and (prefers-color-scheme: dark)", "not all")
    return light.replace("<svg ", '<svg style="background:#ffffff" ', 1) + "\n"


def figure(page: Page, heading: str) -> str:
    """The picture of a page whose heading begins so."""
    figures = [*page.figures, *(f for section in page.sections for f in section.figures)]
    return next(f.svg for f in figures if f.heading.startswith(heading))


# --- a taxonomy in the disk -----------------------------------------------------------------------


def disk(data: str = "carnivores", epochs: int = 60) -> str:
    """The carnivores of WordNet in two dimensions; a longer training crowds the rim."""
    hierarchy = load_hierarchy(data)
    model = HierarchyEmbedding(dim=2, epochs=epochs).fit(hierarchy)
    tree = hierarchy.spanning_tree()
    tangent = model.manifold_.log0(model.transform(tree.labels))
    return disk_svg(
        unit_disk(tangent),
        tree.parent,
        [label.partition(".")[0].replace("_", " ") for label in tree.labels],
        title=f"{data} in the Poincaré disk",
        description=f"{len(tree)} nodes of {data}; edges are geodesics.",
    )


# --- how many dimensions --------------------------------------------------------------------------


def sweep(out: Path = RUNS / "hierarchy", **options: Any) -> str:
    """MAP against dimensions: `beltrami run hierarchy` with its defaults."""
    recipe = create(HierarchyConfig(out=out, resume=True, device="cpu", **options))
    return figure(recipe.page(run(recipe)), "Precision (MAP)")


# --- four diagnoses -------------------------------------------------------------------------------


def tables(folder: Path, rows: int = ROWS) -> dict[str, str]:
    """What is diagnosed, by its name in the picture: a taxonomy that comes along, and three files.

    Like word vectors: directions of unequal importance, and lengths that differ from row to row.
    """
    draws = np.random.default_rng(0)
    spectrum = np.arange(1, 101) ** -0.4
    lengths = np.exp(0.3 * draws.normal(size=(rows, 1)))
    sphere = draws.normal(size=(rows, 3))
    arrays = {
        "words": draws.normal(size=(rows, 100)) * spectrum * lengths,
        "noise": draws.normal(size=(rows, 100)),
        "sphere": sphere / np.linalg.norm(sphere, axis=1, keepdims=True),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.astype(np.float32))
    return {
        "a taxonomy: the mammals of WordNet": "wordnet-mammals",
        "vectors like those of words": str(folder / "words.npy"),
        "Gaussian noise": str(folder / "noise.npy"),
        "the surface of a ball": str(folder / "sphere.npy"),
    }


def diagnoses(folder: Path = RUNS / "diagnoses", rows: int = ROWS, **options: Any) -> str:
    """Gromov's δ of four tables, each beside noise like it."""
    groups = []
    for i, (title, source) in enumerate(tables(folder, rows).items()):
        config = DiagnoseConfig(source, only=("tree-likeness",), out=folder / f"{i}", **options)
        tree = diagnose(config).document["parts"]["tree-likeness"]
        delta = tree["relative_delta"]
        shown = {"these data": delta["data"], "noise like them": delta[tree["nearest_noise"]]}
        estimates = {
            name: Estimate.around(mean["mean"], mean["half_width"]) for name, mean in shown.items()
        }
        groups.append(Group(title, estimates))
    return dot_chart(
        groups,
        title="Gromov's δ of four tables beside noise",
        description="0 is a tree. Only data left of their noise are tree-like.",
        x_label="relative δ: 0 is a tree, 1 a circle",
    )


# --- learned curvatures ---------------------------------------------------------------------------


def curvatures(folder: Path = RUNS / "adapter", layers: int = 6, steps: int = ADAPTER_STEPS) -> str:
    """The curvature that each adapted layer of a small language model learned by HypLoRA."""
    from peft import get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from beltrami.peft import HypLoraConfig
    from beltrami.recipes.hyplora.scoring import curvature_curves
    from examples.hyplora_trainer import WORDS, make_data, train

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_attention_heads=4, **shape))
    train(base, make_data(1, 400), 3e-3, steps, folder)
    config = HypLoraConfig(r=4, alpha=8, target_modules="all-linear", learn_curvature="module")
    model = get_peft_model(copy.deepcopy(base), config)
    train(model, make_data(-1, 400), 1e-2, steps, folder)
    return curvature_chart(curvature_curves(model))


def curvature_chart(curves: Mapping[str, Sequence[float]]) -> str:
    """A line for each kind of layer, over the blocks, of what `curvature_curves` gives."""
    kinds = [name.split()[1] for name in curves if name.endswith(" block")]
    return line_chart(
        [Series(k, curves[f"curvature {k} block"], curves[f"curvature {k}"]) for k in kinds],
        title="Curvatures that HypLoRA learned, by layer",
        description="All began at 1; 0 would be flat, which is LoRA.",
        x_label="block of the model",
        y_label="curvature c",
    )


# --- superposition --------------------------------------------------------------------------------


def superposition(out: Path = RUNS / "superposition", **options: Any) -> str:
    """The share of features that toy models represent, by width and weight decay."""
    small = {
        "laws": ("power:1",), "features": 100, "widths": WIDTHS, "gammas": GAMMAS, "steps": 4000,
        "seeds": 1, "jobs": 1, "check_steps": False, "device": "cpu",
    }  # fmt: skip
    recipe = create(SuperpositionConfig(out=out, resume=True, **{**small, **options}))
    return figure(recipe.page(run(recipe)), "Represented features")


PICTURES: dict[str, Callable[[], str]] = {
    "disk": disk,
    "sweep": sweep,
    "diagnoses": diagnoses,
    "curvatures": curvatures,
    "superposition": superposition,
}


if __name__ == "__main__":
    main()
