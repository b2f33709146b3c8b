"""Metrics that training_step and *_epoch_end return under "log" and "progress_bar", as in Lightning 1.0."""

from collections.abc import Mapping
from typing import Any

import torch

from tutti.compat.deprecation import say_once

# {key of what is returned: arguments for self.log_dict}
_KEYS: dict[str, dict[str, Any]] = {"log": {}, "progress_bar": {"prog_bar": True, "logger": False}}


def has_logs(result: Any) -> bool:
    """Whether ``result`` of a hook has metrics under one of the keys."""
    return isinstance(result, Mapping) and any(isinstance(result.get(key), Mapping) for key in _KEYS)


def log(model: Any, hook_name: str, result: Mapping[str, Any]) -> None:
    """Logs the metrics in ``result``. After an epoch callbacks may monitor its other numbers, too."""
    say_once(f'{type(model).__name__}.{hook_name} returns metrics under "log" or "progress_bar", as in Lightning 1: '
             "write self.log(name, value) in it")
    logged: set[str] = set()
    gathered = getattr(model.trainer.strategy, "calls_step_end", False)  # dp, ddp2: a value of each device
    before, model._current_fx_name = model._current_fx_name, hook_name
    for key, arguments in _KEYS.items():
        metrics = {name: value for name, value in (result.get(key) or {}).items() if name not in logged}
        if gathered:
            metrics = {name: _mean(value) for name, value in metrics.items()}
        model.log_dict(metrics, **arguments)
        logged |= metrics.keys()
    if hook_name.endswith("_epoch_end"):
        others = {name: value for name, value in result.items() if name not in {*logged, *_KEYS} and _is_number(value)}
        model.log_dict(others, logger=False)
    model._current_fx_name = before


def _mean(value: Any) -> Any:
    """The mean over the devices, as Lightning 1 logged it."""
    return value.float().mean() if isinstance(value, torch.Tensor) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0
