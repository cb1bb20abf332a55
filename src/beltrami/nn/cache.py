"""Keys and values of past tokens, for decoding one token after another."""

from __future__ import annotations

import torch
from torch import Tensor


class KVCache:
    """The keys and values an attention layer has seen: one cache a layer.

    Holds space parts, (B, length, heads, size) each, in buffers that double when they are full. A
    plain object: give it to `Attention` or `TransformerBlock` at every step.

    >>> caches = [KVCache() for _ in blocks]
    >>> for block, cache in zip(blocks, caches):
    ...     x = block(x, cache=cache)              # x: the new tokens only
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, T, heads, size) and return all keys and values so far."""
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise RuntimeError("KVCache is for inference: call the model under torch.no_grad()")
        if self._keys is not None and keys.shape[0] != self._keys.shape[0]:
            raise ValueError(
                f"KVCache holds a batch of {self._keys.shape[0]}, got {keys.shape[0]}: "
                "use a new cache for a new batch"
            )
        start, self.length = self.length, self.length + keys.shape[1]
        self._keys = _grown(self._keys, keys, start, self.length)
        self._values = _grown(self._values, values, start, self.length)
        self._keys[:, start : self.length] = keys
        self._values[:, start : self.length] = values
        return self._keys[:, : self.length], self._values[:, : self.length]

    def crop(self, length: int) -> None:
        """Forget all tokens after the first `length`."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop a cache of {self.length} tokens to {length}")
        self.length = length

    def reorder(self, index: Tensor) -> None:
        """Keep the given rows of the batch, in this order (beam search)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[index], self._values[index]


def _grown(buffer: Tensor | None, new: Tensor, used: int, needed: int) -> Tensor:
    if buffer is not None and buffer.shape[1] >= needed:
        return buffer
    grown = new.new_empty(new.shape[0], max(needed, 2 * used), *new.shape[2:])
    if buffer is not None:
        grown[:, :used] = buffer[:, :used]
    return grown
