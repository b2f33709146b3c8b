"""The strategy ``ddp_sharded``."""

import functools
import inspect
from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from tutti.lightning._strategy import TuttiStrategy


def _sharded(optimizer: torch.optim.Optimizer) -> ZeroRedundancyOptimizer:
    """An optimizer like ``optimizer``, of whose state each rank keeps a part."""
    kind = type(optimizer)
    taken = inspect.signature(kind.__init__).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in taken}
    return ZeroRedundancyOptimizer(optimizer.param_groups, kind, **options)


def _move_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Gives ``scheduler``, and those that it is made of, another optimizer."""
    scheduler.optimizer = optimizer
    for inner in getattr(scheduler, "_schedulers", ()):
        _move_scheduler(inner, optimizer)


def _count_steps(optimizer: torch.optim.Optimizer) -> None:
    """Lets ``optimizer`` count its steps, as the schedulers of torch expect of the optimizer that they were made for."""
    step = optimizer.step

    @functools.wraps(step)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        optimizer._opt_called = True
        return step(*arguments, **keywords)

    counted._wrapped_by_lr_sched = True
    optimizer.step = counted


class DDPShardedStrategy(TuttiStrategy):
    """Lightning's DDPShardedStrategy (``ddp_sharded``): each rank keeps a part of the optimizer's state.

    Optimizers that ``configure_optimizers`` returns become torch's ZeroRedundancyOptimizer. A checkpoint has their
    state whole, and may be resumed on another number of ranks. ``algorithm`` is one that exchanges gradients; the other
    arguments are those of :class:`TuttiStrategy`.
    """

    def setup_optimizers(self, trainer: Any) -> None:
        if not self.exchanges_gradients:
            raise self.classes.MisconfigurationException(
                f"ddp_sharded cannot share out what the algorithm {self.algorithm} keeps: use gradient_allreduce or "
                "bytegrad, or the strategy tutti")
        super().setup_optimizers(trainer)
        whole = self.optimizers
        self.optimizers = [_sharded(optimizer) for optimizer in whole]
        for config in self.lr_scheduler_configs:
            scheduler = config.scheduler
            index = next((i for i, one in enumerate(whole) if one is getattr(scheduler, "optimizer", None)), None)
            if index is not None:
                _count_steps(self.optimizers[index])
                _move_scheduler(scheduler, self.optimizers[index])
