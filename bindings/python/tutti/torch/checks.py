"""Checks of what a user gives, whose errors name the argument and what would be right."""

import numbers
from collections.abc import Callable
from typing import Any

import torch


def check_number(name: str, value: Any, right: str, suits: Callable[[Any], bool] = lambda _: True) -> None:
    """Raises TypeError unless ``value`` is a number, or a tensor of one, and ValueError unless it ``suits``."""
    if not isinstance(value, numbers.Real) and not (isinstance(value, torch.Tensor) and value.numel() == 1):
        raise TypeError(f"{name} is a {type(value).__name__}; give {right}")
    if not suits(value):
        raise ValueError(f"{name}={value}; give {right}")


def check_flag(name: str, value: Any) -> None:
    """Raises TypeError unless ``value`` is True or False, or None for a default."""
    if value not in (None, True, False):
        raise TypeError(f"{name} is {value!r}; give True or False")


def check_bucket_cap_mb(bucket_cap_mb: Any) -> None:
    """Raises TypeError or ValueError unless ``bucket_cap_mb`` is None or makes buckets of a byte or more."""
    if bucket_cap_mb is not None:
        check_number("bucket_cap_mb", bucket_cap_mb, "a number of MiB above 0, or None for 25",
                     lambda mib: 1 <= mib * 2**20 < 2**63)  # bytes


def check_loss_scale(scale: Any) -> None:
    """Raises TypeError unless ``scale`` is a number."""
    check_number("set_loss_scale: scale", scale, "a number, such as scaler.get_scale()")


def check_optimizer(optimizer: Any) -> None:
    """Raises TypeError unless ``optimizer`` is one of torch."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"an optimizer is a torch.optim.Optimizer, not a {type(optimizer).__name__}")
