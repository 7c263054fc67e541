"""Autocast asked, and switched off where a kernel names its own types."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The type that autocast multiplies in on x's device, None where it is off or unknown (meta)."""
    kind = x.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def without_autocast(x: Tensor):
    """A context without autocast on x's device; on one that knows none (meta) nothing at all."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else contextlib.nullcontext()
