"""What is measured of a trained language model, beside its loss."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from beltrami.analysis.intervals import mean_interval
from beltrami.data import HierarchyError, load_hierarchy
from beltrami.data.corpus import IGNORE, PackedRows
from beltrami.geometry import Lorentz
from beltrami.recipes.helm.text import Text
from beltrami.recipes.helm.training import HelmSettings, autocast, inputs, stacked
from beltrami.recipes.results import TrialResult, interval_json
from beltrami.train.seeding import seeded

Curves = dict[str, list[float]]
MEASURED_ROWS = 256  # of the test documents, whose radii are measured
FEWEST_WORDS = 3  # tokens of a level of WordNet, for a mean
PROMPTS, PROMPT_TOKENS, NEW_TOKENS, TOP_K = 3, 24, 48, 50
# Products a second in bfloat16 without sparsity, from the makers' data sheets.
PEAKS = {
    "H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12,
    "L4": 121e12, "RTX 4090": 165e12, "RTX 3090": 71e12, "V100": 112e12, "T4": 65e12,
}  # fmt: skip


def peak_of(device: torch.device) -> float | None:
    """Products a second that a GPU can do; None where that is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def flops_per_token(model: Any, length: int) -> float:
    """6·N of the matrices (all but the embedding), and 12·layers·length·width of attention."""
    config = model.config
    n = sum(p.numel() for name, p in model.named_parameters() if "embed_tokens" not in name)
    return float(6 * n + 12 * config.num_hidden_layers * length * config.hidden_size)


def step_seconds(history: Sequence[Mapping[str, float]]) -> float:
    """The median time of a step, so without compiling, validation and checkpoints."""
    pairs = pairwise(history)
    return statistics.median(
        [(b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in pairs] or [math.nan]
    )


def scaled_radius(x: Tensor, manifold: Any) -> Tensor:
    """√c·|x|; of the Euclidean twin |x|/√d, which is the same at c = 1/d."""
    radius = manifold.radius_like(x) if isinstance(manifold, Lorentz) else x.shape[-1] ** 0.5
    length: Tensor = x.float().norm(dim=-1)
    return length / radius


@torch.no_grad()
def radius_curves(
    model: Any,
    s: HelmSettings,
    rows: PackedRows,
    device: torch.device,
    groups: Mapping[str, Mapping[float, Tensor]],
) -> Curves:
    """Scaled radii of the stream on test documents: by depth, and of groups of tokens.

    Args:
        model: not compiled. s, rows, device: of the trial and the test.
        groups: by name, token ids by their place on an axis. Of each there is the mean of its rows
            of the embedding, and the mean of its occurrences after the last block.
    """
    core, now = model.model, list[Tensor]()

    def keep(module: Any, _: Any, out: Tensor) -> None:
        now.append(scaled_radius(out, core.manifold if module is table else module.manifold))

    table, words, radii = core.embed_tokens, [], []
    hooks = [module.register_forward_hook(keep) for module in (table, *core.layers)]
    for start in range(0, min(len(rows), MEASURED_ROWS), s.batch):
        batch = inputs(stacked(rows, start, s.batch), s, device)
        shown = batch.pop("labels") != IGNORE
        now.clear()
        with autocast(s, device):
            core(**batch)
        words.append(batch["input_ids"][shown].cpu())
        radii.append(torch.stack([radius[shown] for radius in now]).cpu())
    for hook in hooks:
        hook.remove()
    by_depth, ids = torch.cat(radii, dim=1), torch.cat(words)  # (depths, tokens), (tokens,)
    low, high = np.quantile(by_depth.numpy(), [0.1, 0.9], axis=1)
    curves = {
        "radius x": list(map(float, range(len(by_depth)))),
        "radius": by_depth.mean(1).tolist(),
        "radius low": low.tolist(),
        "radius high": high.tolist(),
    }
    of_rows = scaled_radius(table.weight, core.manifold).cpu()
    counts = torch.bincount(ids, minlength=len(of_rows))
    sums = torch.zeros(len(of_rows)).index_add_(0, ids, by_depth[-1])
    for name, group in groups.items():
        seen = {x: of for x, of in group.items() if counts[of].sum() > 0}
        curves |= {
            f"{name} embedding x": list(group),
            f"{name} embedding": [float(of_rows[of].mean()) for of in group.values()],
            f"{name} last block x": list(seen),
            f"{name} last block": [
                float(sums[of].sum() / counts[of].sum()) for of in seen.values()
            ],
        }
    return curves


def frequency_deciles(counts: Tensor) -> dict[float, Tensor]:
    """The tokens that occur in training, in ten equal groups from the rarest to the commonest."""
    used = counts.argsort(stable=True)[int((counts == 0).sum()) :]
    groups = used.tensor_split(10)
    return {float(i): ids for i, ids in enumerate(groups, start=1) if len(ids)}


def wordnet_levels(text: Text) -> dict[float, Tensor] | None:
    """Tokens that are nouns by their level in WordNet; None where WordNet is not installed."""
    try:
        nouns = load_hierarchy("wordnet-nouns")
    except HierarchyError:
        return None
    depth, levels = nouns.depth, dict[int, list[int]]()
    for token in range(text.vocab_size):
        label = f"{str(text.tokenizer.decode([token])).strip().lower()}.n.01"
        if label in nouns:
            levels.setdefault(int(depth[nouns.index(label)]), []).append(token)
    return {
        float(level): torch.tensor(ids)
        for level, ids in sorted(levels.items())
        if len(ids) >= FEWEST_WORDS
    }


@torch.no_grad()
def samples(model: Any, text: Text, s: HelmSettings, seed: int) -> dict[str, list[str]]:
    """How a model goes on with the beginnings of some test documents."""
    begin = min(PROMPT_TOKENS, s.length // 2)
    documents = (text.test[i] for i in range(len(text.test)))
    prompts = [d[:begin].astype(np.int64) for d in documents if len(d) > begin][:PROMPTS]
    if not prompts:
        return {}
    ids = torch.from_numpy(np.stack(prompts)).to(model.device)
    with seeded(seed, model.device):
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=min(NEW_TOKENS, s.length - begin),
            do_sample=True,
            top_k=min(TOP_K, text.vocab_size),
            pad_token_id=text.train.pad_id,
        )
    decode = text.tokenizer.batch_decode
    return {
        "prompts": decode(ids.tolist()),
        "samples": decode(out[:, begin:].tolist(), skip_special_tokens=True),
    }


def validation_curve(result: TrialResult) -> tuple[list[float], list[float]]:
    """Steps and validation losses of a training."""
    entries = [e for e in result.history if "validation loss" in e]
    return [e["step"] for e in entries], [e["validation loss"] for e in entries]


def equal_time(ours: Sequence[TrialResult], twins: Sequence[TrialResult]) -> dict[str, Any]:
    """Validation losses at the time when the faster of two models is done, paired by seed."""
    at_time = []
    for pair in zip(ours, twins, strict=True):
        units = [step_seconds(result.history) for result in pair]
        limit = min(u * r.history[-1]["step"] for u, r in zip(units, pair, strict=True))
        at_time.append(
            [np.interp(limit / u, *validation_curve(r)) for u, r in zip(units, pair, strict=True)]
        )
    values = np.array(at_time)
    columns = {
        "loss": values[:, 0],
        "twin": values[:, 1],
        "difference": values[:, 0] - values[:, 1],
    }
    return {k: interval_json(mean_interval(column.tolist())) for k, column in columns.items()}
