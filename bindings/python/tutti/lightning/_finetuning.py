"""Callbacks that freeze a part of the module, and let it train from a later epoch on, such as BackboneFinetuning."""

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def frozen_by_callbacks(trainer: Any, package: str) -> list[torch.nn.Parameter]:
    """The frozen parameters of the module that ``trainer`` trains, where a callback may unfreeze some of them later."""
    finetuning = importlib.import_module(f"{package}.callbacks").BaseFinetuning
    if not any(isinstance(callback, finetuning) for callback in trainer.callbacks):
        return []
    return [parameter for parameter in trainer.lightning_module.parameters()
            if not parameter.requires_grad and (parameter.is_floating_point() or parameter.is_complex())]


def of_optimizers(
    optimizers: Iterable[torch.optim.Optimizer], parameters: list[torch.nn.Parameter]
) -> list[torch.nn.Parameter]:
    """Those of the ``parameters`` that one of the ``optimizers`` has."""
    known = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}
    return [parameter for parameter in parameters if id(parameter) in known]


@contextlib.contextmanager
def trained(frozen: list[torch.nn.Parameter]) -> Iterator[None]:
    """Lets the parameters ``frozen`` require gradients inside: a wrapper that is made there exchanges them, too."""
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
