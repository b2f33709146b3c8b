"""The strategy ``ddp_sharded``."""

import functools
import inspect
import operator
import warnings
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

from tutti.lightning._strategy import TuttiStrategy


# What was made of each optimizer in an earlier fit. The two have the same groups, so that rates are those of both.
_made: MutableMapping[torch.optim.Optimizer, ZeroRedundancyOptimizer] = weakref.WeakKeyDictionary()

_OF_EVERY_OPTIMIZER = set(vars(torch.optim.SGD([torch.zeros(1)]))) | {"_opt_called", "step"}


def _sharded(optimizer: torch.optim.Optimizer) -> ZeroRedundancyOptimizer:
    """An optimizer like ``optimizer``, of whose state each rank keeps a part. ValueError where it cannot be shared out."""
    kind = type(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(f"ddp_sharded lets each rank step a part of the parameters, and the step of {kind.__name__} depends on "
                         "all of them together: use strategy=\"tutti\", or another optimizer")
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


def _sharded_once(optimizer: torch.optim.Optimizer) -> ZeroRedundancyOptimizer:
    """As ``_sharded``; that of an earlier fit, with its state, while the process group and the groups are the same."""
    made = _made.get(optimizer)
    if made is None or made.process_group is not dist.group.WORLD or not _share_groups(made, optimizer):
        made = _made[optimizer] = _sharded(optimizer)
    return made


def _share_groups(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Whether a change of a group of ``one``, such as another rate, is one of ``other``, too."""
    groups, others = one.param_groups, other.param_groups
    return len(groups) == len(others) and all(map(operator.is_, groups, others))


def _share_out_assigned_groups(sharded: ZeroRedundancyOptimizer, whole: torch.optim.Optimizer) -> None:
    """Shares out the groups of ``sharded`` that were assigned to its attribute beyond those of ``whole``.

    BaseFinetuning does so in a training that goes on from a checkpoint, with the groups that it had added before.
    """
    added = sharded.param_groups[len(whole.param_groups):]
    sharded.param_groups = list(whole.param_groups)
    for group in added:
        sharded.add_param_group(group)


def _move_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Gives ``scheduler``, and those that it is made of, another optimizer."""
    scheduler.optimizer = optimizer
    for inner in getattr(scheduler, "_schedulers", ()):
        _move_scheduler(inner, optimizer)


def _count_steps(optimizer: torch.optim.Optimizer) -> None:
    """Lets ``optimizer`` count its steps, as the schedulers of torch expect of the optimizer that they were made for."""
    step = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return

    @functools.wraps(step)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        optimizer._opt_called = True
        return step(*arguments, **keywords)

    counted._wrapped_by_lr_sched = True
    optimizer.step = counted


class DDPShardedStrategy(TuttiStrategy):
    """Lightning's DDPShardedStrategy (``ddp_sharded``): each rank keeps a part of the optimizer's state.

    Optimizers that ``configure_optimizers`` returns become torch's ZeroRedundancyOptimizer; ValueError where that cannot
    train the same, as with LBFGS. A checkpoint has their state whole, and may be resumed on another number of ranks.
    ``algorithm`` is one that exchanges gradients; the other arguments are those of :class:`TuttiStrategy`.
    """

    _whole: Sequence[torch.optim.Optimizer] = ()  # what `configure_optimizers` has returned
    _moved: Sequence[tuple[Any, torch.optim.Optimizer]] = ()  # schedulers, and their optimizers outside of the fit

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
        self._whole = whole = self.optimizers
        self.optimizers = [_sharded_once(optimizer) for optimizer in whole]
        self._moved = moved = []
        for config in self.lr_scheduler_configs:
            scheduler = config.scheduler
            index = next((i for i, one in enumerate(whole) if one is getattr(scheduler, "optimizer", None)), None)
            if index is not None:
                _count_steps(self.optimizers[index])
                _move_scheduler(scheduler, self.optimizers[index])
                moved.append((scheduler, whole[index]))

    def teardown(self) -> None:
        for scheduler, optimizer in self._moved:  # a later fit may get both again
            _move_scheduler(scheduler, optimizer)
        self._moved = ()
        super().teardown()

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        if not self._is_alone:
            return super().optimizer_state(optimizer)
        return {**torch.optim.Optimizer.state_dict(optimizer), "state": {}}  # as before the first step

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self._is_alone and "optimizer_states" in checkpoint and self.is_global_zero:
            warnings.warn("ddp_sharded: an exception has ended the training, so that rank 0 cannot ask the other ranks for "
                          f"their parts of the optimizer's state: a training that goes on from {filepath} has its weights, "
                          "and begins with an empty state of the optimizer", stacklevel=2)
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for whole, optimizer in zip(self._whole, self.optimizers):
            _share_out_assigned_groups(optimizer, whole)
            optimizer.optim.state.clear()  # a state that is empty, as before the first step, would leave this one
        super().load_optimizer_state_dict(checkpoint)
        for optimizer, sharded in zip(self._whole, self.optimizers):
            optimizer.param_groups = list(sharded.param_groups)  # loading makes the groups anew
