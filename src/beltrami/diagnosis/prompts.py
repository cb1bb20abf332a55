"""δ of each prompt, whose tokens are points, and whether it has to do with right answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from beltrami.analysis.correlation import spearman
from beltrami.analysis.gromov import FEWEST, delta_hyperbolicity
from beltrami.analysis.null_models import gaussian_at_radii, gaussian_like
from beltrami.data.load import list_hierarchies
from beltrami.data.vectors import list_vectors
from beltrami.data.word_problems import WordProblem, gives_answer, read_problems
from beltrami.diagnosis.config import DiagnoseConfig
from beltrami.diagnosis.numbers import mean_of, significant
from beltrami.diagnosis.source import Tick
from beltrami.diagnosis.text_files import read_text
from beltrami.models.pretrained.answers import generate_answers
from beltrami.models.pretrained.opening import (
    ENCODER,
    SMOLLM2,
    load_encoder,
    open_language_model,
)
from beltrami.models.pretrained.prompts import encode, put

BATCH, NEW_TOKENS = 16, 256  # of answers
LONGEST = 2048  # tokens of a prompt; those behind are left out
FEWEST_PROMPTS = 10  # of either kind, for a correlation
RESAMPLED = 500  # times, for its interval
MODELS = (SMOLLM2, ENCODER)  # names that are models, and not tables alone
_OTHER_HALF = 0.5  # of the work: answers take the first


@dataclass(frozen=True)
class Prompt:
    """A text, and whether the model answers it rightly, where that is known."""

    text: str
    correct: bool | None = None


@dataclass(frozen=True)
class Seen:
    """The states of a prompt's tokens, (n, d), which tokens, and whether all of it fitted."""

    points: Tensor
    tokens: list[int]
    whole: bool


def prompts(config: DiagnoseConfig, tick: Tick) -> dict[str, Any]:
    """Relative δ of the tokens of each prompt, beside noise, with correlations."""
    if config.task is not None:
        opened = open_language_model(config.source)
        model: Any = opened.load(torch.float32).eval()
        tokenizer = opened.tokenizer
        problems = read_problems(config.task)[: config.prompts]
        right, texts = _answer(model, tokenizer, problems, lambda share: tick(_OTHER_HALF * share))
        chosen = [Prompt(text, ok) for text, ok in zip(texts, right, strict=True)]
    else:
        assert config.texts is not None
        model, tokenizer = load_encoder(config.source)
        chosen = read_prompts(config.texts)[: config.prompts]
    begun = _OTHER_HALF if config.task is not None else 0.0
    deltas, noise, at_radii, lengths, known = [], [], [], [], []
    cut = 0
    for i, prompt in enumerate(chosen):
        seen = hidden_states(model, tokenizer, prompt.text, config.layer)
        g = torch.Generator().manual_seed(config.seed + i)
        points = seen.points[torch.randperm(len(seen.points), generator=g)]  # the base point first
        cut += not seen.whole
        tick(begun + (1 - begun) * (i + 1) / len(chosen))
        if len(points) < FEWEST:
            continue
        deltas.append(delta_hyperbolicity(points, config.metric).relative)
        null = gaussian_like(points, seed=config.seed + i)
        noise.append(delta_hyperbolicity(null, config.metric).relative)
        # States of first tokens may be hundreds of times as long as all others.
        null = gaussian_at_radii(points, seed=config.seed + i)
        at_radii.append(delta_hyperbolicity(null, config.metric).relative)
        lengths.append(len(points))
        known.append(prompt.correct)
    if not deltas:
        raise ValueError(f"no prompt has {FEWEST} tokens, the least that have a δ")
    nearest = min(noise, at_radii, key=sum)
    return {
        "file": (config.task or config.texts or Path()).name,
        "asked": config.task is not None,
        "layer": config.layer,
        "prompts": len(deltas),
        "left_out_for_fewer_than_4_tokens": len(chosen) - len(deltas),
        "cut_off": cut,
        "relative_delta": mean_of(deltas),
        "noise": mean_of(noise),
        "noise_of_equal_lengths": mean_of(at_radii),
        "excess_over_noise": mean_of([d - n for d, n in zip(deltas, nearest, strict=True)]),
        "values": [significant(v) for v in deltas],
        "noise_values": [significant(v) for v in nearest],
        "tokens": lengths,
        "correlation_with_tokens": _correlation(deltas, [float(n) for n in lengths]),
        "correctness": _correctness(deltas, nearest, known),
    }


def check_model(config: DiagnoseConfig) -> None:
    """Raise early if there are prompts and no model for them."""
    if config.of == "states" and not config.texts:
        raise ValueError("--of states needs --texts FILE, whose hidden states it is about")
    if not (config.texts or config.task):
        return
    tables = [name for name in list_vectors() if name not in MODELS]
    if config.source in tables or config.source in list_hierarchies():
        raise ValueError(f"--texts and --task need a model, and {config.source} is none")
    if Path(config.source).is_file():
        raise ValueError(
            f"--texts and --task need a model of transformers, and {config.source} is a file"
        )
    if config.task and config.source == ENCODER:
        raise ValueError(f"--task needs a model that writes, and {ENCODER} only encodes")


def read_prompts(path: Path) -> list[Prompt]:
    """One a line, as text or, in a .jsonl file, as an object."""
    result = []
    records = path.suffix.lower() == ".jsonl"
    for number, line in enumerate(read_text(path, "--texts").split("\n"), 1):
        if line.strip():
            result.append(_of_record(path, number, line) if records else Prompt(line.strip("\r")))
    if not result:
        raise ValueError(f"--texts {path} has no prompts")
    return result


def _of_record(path: Path, number: int, line: str) -> Prompt:
    where = f"--texts {path}, line {number}"
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str):
        raise ValueError(f'{where}: expected an object with "prompt", got {line[:60]!r}')
    if not record["prompt"].strip():
        raise ValueError(f"{where}: the prompt is empty")
    correct = record.get("correct")
    if correct is not None and not isinstance(correct, bool):
        raise ValueError(f'{where}: "correct" must be true or false, got {correct!r}')
    return Prompt(record["prompt"], correct)


@torch.no_grad()
def hidden_states(model: Any, tokenizer: Any, text: str, layer: int) -> Seen:
    """What a model makes of a prompt.

    Tokens that the tokenizer adds, such as one for the beginning, are not part of the prompt; their
    states are often far from all others.
    """
    longest = min(
        LONGEST,
        getattr(model.config, "max_position_embeddings", LONGEST),
        tokenizer.model_max_length,
    )
    tokens = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
    ids, added = tokens["input_ids"][:, :longest], tokens["special_tokens_mask"][0, :longest]
    states = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
    ).hidden_states
    if not -len(states) <= layer < len(states):
        raise ValueError(f"--layer must be from {-len(states)} to {len(states) - 1}, got {layer}")
    own = added == 0
    return Seen(
        states[layer][0][own].double(),
        ids[0, own].tolist(),
        whole=tokens["input_ids"].shape[1] <= longest,
    )


def _answer(
    model: Any, tokenizer: Any, problems: Sequence[WordProblem], tick: Tick
) -> tuple[list[bool], list[str]]:
    """Whether the model's greedy answers are right, and the questions as they were put."""
    coded = encode(problems, tokenizer, prompt="auto", longest=LONGEST)
    right: list[bool] = []
    for first in range(0, len(coded), BATCH):
        here = slice(first, first + BATCH)
        answers = generate_answers(
            model, coded[here], tokenizer, batch=BATCH, new_tokens=NEW_TOKENS
        )
        pairs = zip(answers, problems[here], strict=True)
        right += [gives_answer(text, problem.answer) for text, problem in pairs]
        tick(len(right) / len(coded))
    return right, [put(p.question, "plain", tokenizer) for p in problems]


def _correctness(
    deltas: Sequence[float], noise: Sequence[float], known: Sequence[bool | None]
) -> dict[str, Any] | None:
    """δ of prompts that are answered rightly and wrongly; None where that is not known."""
    judged = [i for i, ok in enumerate(known) if ok is not None]
    if not judged:
        return None
    right = [i for i in judged if known[i]]
    wrong = [i for i in judged if not known[i]]
    summary: dict[str, Any] = {"right": len(right), "wrong": len(wrong)}
    if min(len(right), len(wrong)) < FEWEST_PROMPTS:
        summary["missing"] = (
            f"{len(right)} right and {len(wrong)} wrong answers are too few to compare; "
            f"{FEWEST_PROMPTS} of each are the least"
        )
        return summary
    ok = [float(bool(known[i])) for i in judged]
    excess = [deltas[i] - noise[i] for i in judged]
    return {
        **summary,
        "delta_of_right": mean_of([deltas[i] for i in right]),
        "delta_of_wrong": mean_of([deltas[i] for i in wrong]),
        "correlation": _correlation([deltas[i] for i in judged], ok),
        "correlation_of_excess": _correlation(excess, ok),
    }


def _correlation(x: Sequence[float], y: Sequence[float]) -> dict[str, float | None] | None:
    """Spearman's with a 95 % interval by resampling; None where one of both is constant."""
    if len(x) < FEWEST_PROMPTS or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    pairs = torch.tensor([x, y], dtype=torch.float64)
    g = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(RESAMPLED):
        xs, ys = pairs[:, torch.randint(len(x), (len(x),), generator=g)]
        if len(xs.unique()) > 1 and len(ys.unique()) > 1:
            drawn.append(spearman(xs, ys))
    low, high = torch.tensor(drawn, dtype=torch.float64).quantile(
        torch.tensor([0.025, 0.975], dtype=torch.float64)
    )
    return {"value": spearman(pairs[0], pairs[1]), "low": float(low), "high": float(high)}
