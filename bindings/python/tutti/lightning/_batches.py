"""Ranks that make each step together need as many batches as each other; those of async need not step together."""

import importlib
import warnings
from typing import Any

import torch
import torch.distributed as dist

import tutti.torch


def warn_of_unequal(mine: float, device: torch.device) -> None:
    """Warns on rank 0 where the ranks have different numbers of training batches; ``mine`` may be infinite. Collective."""
    counts = [torch.empty(1, dtype=torch.float64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([mine], dtype=torch.float64, device=device))
    batches = [float(count) for count in counts]
    fewest, most = batches.index(min(batches)), batches.index(max(batches))
    if batches[fewest] == batches[most] or dist.get_rank() != 0:
        return
    limit = tutti.torch._backend_of(dist.group.WORLD, "warn_of_unequal").timeout
    warnings.warn(
        f"rank {fewest} has {batches[fewest]:.0f} training batches and rank {most} has {batches[most]:.0f}. The ranks make "
        f"each step together, so that the training will end with an error of the timeout {limit.total_seconds():.0f} s "
        f"after rank {fewest} has no more, unless max_steps ends the training before: let the sampler give all ranks as "
        "many samples (drop_last=True), or say "
        f"limit_train_batches={batches[fewest]:.0f}", stacklevel=2)


def warn_of_waits(trainer: Any, package: str) -> None:
    """Warns on rank 0 of the callbacks of the Lightning ``package`` that let ranks wait for rank 0 after each batch."""
    callbacks = importlib.import_module(f"{package}.callbacks")
    waits = {}
    for callback in trainer.callbacks:
        if isinstance(callback, callbacks.Timer) and callback._duration is not None and callback._interval == "step":
            waits["Timer, which max_time makes,"] = "Timer(duration, interval=\"epoch\") in callbacks does not"
        if isinstance(callback, callbacks.ModelCheckpoint) and callback._train_time_interval is not None:
            waits["ModelCheckpoint(train_time_interval=…)"] = "every_n_train_steps waits only to save"
    if dist.get_rank() == 0:
        for callback, advice in waits.items():
            warnings.warn(f"{callback} lets all ranks wait for rank 0 after each batch, also the ranks of async, which then "
                          f"need as many batches as rank 0: {advice}", stacklevel=2)
