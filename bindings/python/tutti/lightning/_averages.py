"""Averages of weights that a callback keeps on each rank, of weights that differ between ranks."""

import importlib
from typing import Any

import torch.distributed as dist

import tutti.torch


def agree(wrapper: tutti.torch.DistributedDataParallel, trainer: Any, package: str) -> None:
    """Gives all ranks the mean of what WeightAveraging has on each, for the weights that ``wrapper`` exchanges. Collective."""
    averaging = importlib.import_module(f"{package}.callbacks").WeightAveraging
    for callback in trainer.callbacks:
        if isinstance(callback, averaging) and callback._average_model is not None:
            for _, parameter in wrapper._exchanged(callback._average_model.module.named_parameters()):
                if parameter.is_floating_point() or parameter.is_complex():
                    dist.all_reduce(parameter.detach(), dist.ReduceOp.AVG)
