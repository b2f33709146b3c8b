"""The strategy ``ddp_sharded``."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from tutti.lightning._strategy import TuttiStrategy


_OF_EVERY_OPTIMIZER = set(vars(torch.optim.SGD([torch.zeros(1)]))) | {"_opt_called", "step"}


def _sharded(optimizer: torch.optim.Optimizer) -> ZeroRedundancyOptimizer:
    """An optimizer like ``optimizer``, of whose state each rank keeps a part. ValueError where it cannot be made anew."""
    kind = type(optimizer)
    taken = [parameter for name, parameter in inspect.signature(kind.__init__).parameters.items()
             if name not in ("self", "params") and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]
    unknown = sorted({parameter.name for parameter in taken} - optimizer.defaults.keys())
    unknown += sorted(vars(optimizer).keys() - _OF_EVERY_OPTIMIZER)
    hooks = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
             "_optimizer_state_dict_post_hooks")
    unknown += [name for name in hooks if getattr(optimizer, name, None)]
    if unknown and not kind.__module__.startswith("torch.optim."):
        raise ValueError(f"ddp_sharded makes the optimizers anew, each with a part of the parameters, and {unknown[0]} of "
                         f"{kind.__name__} is known neither from its defaults nor from its groups: use an optimizer of "
                         "torch.optim, or strategy=\"tutti\"")
    if unknown and unknown[-1] in hooks:
        raise ValueError(f"ddp_sharded makes the optimizers anew, and {kind.__name__} has hooks: register hooks in "
                         "on_fit_start, on self.optimizers(), or use strategy=\"tutti\"")
    options = {parameter.name: optimizer.defaults[parameter.name]
               for parameter in taken if parameter.name in optimizer.defaults}
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
        if self.autotunes:
            raise self.classes.MisconfigurationException(
                "ddp_sharded trains in torch's DistributedDataParallel, whose buckets autotune cannot change: leave "
                "out autotune and TUTTI_AUTOTUNE=1, or use the strategy tutti")
        super().setup_optimizers(trainer)
        whole = self.optimizers
        self.optimizers = [_sharded(optimizer) for optimizer in whole]
        for config in self.lr_scheduler_configs:
            scheduler = config.scheduler
            index = next((i for i, one in enumerate(whole) if one is getattr(scheduler, "optimizer", None)), None)
            if index is not None:
                _count_steps(self.optimizers[index])
                _move_scheduler(scheduler, self.optimizers[index])

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer in self.optimizers:
            optimizer.optim.state.clear()  # a state that is empty, as before the first step, would leave this one
        super().load_optimizer_state_dict(checkpoint)
