"""Which tensor of a model is its table of tokens, by the names that models give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beltrami.data.hierarchy import did_you_mean
from beltrami.data.vectors.table import VectorsError

# What the names end with, in the order in which equal tables are preferred.
TOKEN_SUFFIXES = (
    "shared.weight",  # T5, BART
    "embed_tokens.weight",  # Llama, Qwen, Gemma, OPT
    "wte.weight",  # GPT-2
    "word_embeddings.weight",  # BERT, BLOOM, Falcon
    "word_embedding.weight",  # XLNet
    "tok_embeddings.weight",  # ModernBERT, Llama as published
    "embed_in.weight",  # GPT-NeoX
    "token_embedding.weight",  # CLIP
    "token_embeddings.weight",
    "token_embd.weight",  # GGUF
    "embedding.weight",  # tables without a model
    "embeddings.weight",  # Mamba
)
OUTPUT_SUFFIXES = ("lm_head.weight", "embed_out.weight", "output.weight")  # a row a token, too
LISTED = 12  # tensors that an error shows

ShapeOf = Callable[[str], Sequence[int]]


def is_token_table(name: str) -> bool:
    """Whether the rows of a tensor of this name are tokens."""
    return token_rank(name) is not None or _ends(name, OUTPUT_SUFFIXES) is not None


def choose_tensor(
    names: Sequence[str],
    tensor: str | None,
    *,
    where: str,
    shape_of: ShapeOf,
    shapes_at_hand: bool = True,
) -> str:
    """The tensor asked for, else the only one, else the table of tokens.

    Args:
        names: all tensors. tensor: the one asked for. where: how errors call the source.
        shape_of: gives a tensor's shape, perhaps slowly.
        shapes_at_hand: whether an error may ask for all shapes.
    """
    if tensor is not None:
        if tensor in names:
            return tensor
        hint = did_you_mean(tensor, names)
        raise VectorsError(
            f"{where} has no tensor {tensor!r}; {hint}{' ' if hint else ''}It has "
            f"{_listed(names, shape_of if shapes_at_hand else None)}"
        )
    if len(names) == 1:
        return names[0]
    ranked = sorted((rank, name) for name in names if (rank := token_rank(name)) is not None)
    candidates = [name for _, name in ranked]
    if len(candidates) > 1:
        candidates = [name for name in candidates if len(shape_of(name)) == 2]
    if len(candidates) == 1 or len({tuple(shape_of(name)) for name in candidates}) == 1:
        return candidates[0]
    if candidates:
        raise VectorsError(
            f"{where} has several tables that may be the tokens'; name one with tensor= "
            f"(--tensor): {_listed(candidates, shape_of)}"
        )
    raise VectorsError(
        f"{where} has no tensor with the name of a token embedding; name one with tensor= "
        f"(--tensor): {_listed(names, shape_of if shapes_at_hand else None)}"
    )


def _listed(names: Sequence[str], shape_of: ShapeOf | None) -> str:
    """Two-dimensional tensors with their shapes, most rows first; without shapes all names."""
    shown = list(names)
    if shape_of is not None:
        tables = [(tuple(shape_of(name)), name) for name in names]
        tables = sorted((t for t in tables if len(t[0]) == 2), key=lambda t: -t[0][0])
        shown = [f"{name} {shape}" for shape, name in tables]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    return (", ".join(shown[:LISTED]) or "no two-dimensional tensors") + more


def token_rank(name: str) -> int | None:
    """The place of a name among those of tables of tokens; None where it is not among them."""
    return _ends(name, TOKEN_SUFFIXES)


def _ends(name: str, suffixes: Sequence[str]) -> int | None:
    """Which of the suffixes a name has; whole parts count, so no `patch_embedding.weight`."""
    for place, suffix in enumerate(suffixes):
        if name == suffix or name.endswith(f".{suffix}"):
            return place
    return None
