"""Modules and their paths as if nothing were wrapped."""

from __future__ import annotations

from torch import nn

# Under which name a wrapper of one module (compile, FSDP, activation checkpointing) keeps it.
_COMPILED = ("_orig_mod",)
_WRAPPED = (*_COMPILED, "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def module_paths(model: nn.Module) -> dict[nn.Module, str]:
    """Every module that is not a wrapper, with its path as if there were no wrappers."""
    paths: dict[nn.Module, str] = {}

    def walk(module: nn.Module, path: str) -> None:
        inner = _unwrapped(module)
        if inner is not None:
            walk(inner, path)
        elif module not in paths:
            paths[module] = path
            for name, child in module.named_children():
                walk(child, f"{path}.{name}" if path else name)

    walk(model, "")
    return paths


def without_copies(model: nn.Module) -> nn.Module:
    """The model without what copies it to devices or compiles it; FSDP is part of it."""
    while (inner := _unwrapped(model, _COMPILED)) is not None:
        model = inner
    return model


def _unwrapped(module: nn.Module, names: tuple[str, ...] = _WRAPPED) -> nn.Module | None:
    """The module inside a wrapper, one that copies it or keeps it under one of the names."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner: nn.Module = module.module
        return inner
    return next((module._modules[name] for name in names if name in module._modules), None)
