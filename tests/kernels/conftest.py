"""Fused kernels run in Triton's interpreter where there is no GPU.

It must be asked for before a kernel is defined, and kernels are imported on first use.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
