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
        if self._keys is not None and keys.shape[2:] != self._keys.shape[2:]:
            raise ValueError(
                f"KVCache holds keys of (heads, size) = {tuple(self._keys.shape[2:])}, got "
                f"{tuple(keys.shape[2:])}: use one cache a layer"
            )
        start, end = self.length, self.length + keys.shape[1]
        all_keys = _grown(self._keys, keys, start, end)
        all_values = _grown(self._values, values, start, end)
        all_keys[:, start:end] = keys
        all_values[:, start:end] = values
        self._keys, self._values, self.length = all_keys, all_values, end
        return all_keys[:, :end], all_values[:, :end]

    def crop(self, length: int) -> None:
        """Forget all tokens after the first `length`."""
        if isinstance(length, bool) or not isinstance(length, int):
            raise TypeError(f"length must be an integer, got {type(length).__name__}")
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop a cache of {self.length} tokens to {length}")
        self.length = length
        if length == 0:  # as new: another batch, dtype or device may follow
            self._keys = self._values = None

    def reorder(self, index: Tensor) -> None:
        """Keep the given rows of the batch, in this order (beam search)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[index], self._values[index]


def _grown(buffer: Tensor | None, new: Tensor, used: int, needed: int) -> Tensor:
    # A buffer made in inference mode cannot be written to outside of it.
    usable = buffer is not None and buffer.is_inference() == torch.is_inference_mode_enabled()
    if buffer is not None and usable and buffer.shape[1] >= needed:
        return buffer
    grown = new.new_empty(new.shape[0], max(needed, 2 * used), *new.shape[2:])
    if buffer is not None:
        grown[:, :used] = buffer[:, :used]
    return grown
