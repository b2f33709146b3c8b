"""Loss scalers of Lightning where the ranks see different gradients."""

from typing import Any

import torch

import tutti.torch


def shared_scaler(model: tutti.torch.DistributedDataParallel, scaler: torch.amp.GradScaler) -> tutti.torch.GradScaler:
    """A scaler like ``scaler``, with which all ranks skip a step together where the gradients of one overflow."""
    shared = tutti.torch.GradScaler(
        model, init_scale=scaler.get_scale(), growth_factor=scaler.get_growth_factor(),
        backoff_factor=scaler.get_backoff_factor(), growth_interval=scaler.get_growth_interval(),
        enabled=scaler.is_enabled())
    shared.load_state_dict(scaler.state_dict())
    return shared


def scale_of(precision: Any) -> float | None:
    """The loss scale of a precision plugin; None where losses are not scaled."""
    scaler = getattr(precision, "scaler", None)
    return scaler.get_scale() if scaler is not None and scaler.is_enabled() else None
