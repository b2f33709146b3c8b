"""``torch.nn.Module.with_bagua``, which old scripts call on their model."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

import tutti.torch
from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm
from tutti.torch.grad_scaler import KEPT_AS


class _Kept:
    """Keeps the wrapper of a module alive as long as the module; a copy of the module is not exchanged."""

    def __init__(self, wrapper: tutti.torch.DistributedDataParallel | None = None) -> None:
        self.wrapper = wrapper

    def __deepcopy__(self, _: dict[int, Any]) -> "_Kept":
        return _Kept()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Kept, ()


def with_bagua(
    self: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    algorithm: Algorithm,
    process_group: dist.ProcessGroup | None = None,
    do_flatten: bool = True,
) -> torch.nn.Module:
    """Trains the module by ``algorithm`` on all ranks from now on, and returns the module itself. Collective.

    Today: ``model = tutti.torch.DistributedDataParallel(module, optimizer, algorithm.strategy)``, and
    ``model.broadcast_optimizer(optimizer)``. Parameters and buffers become those of rank 0, except those that the module
    says to ignore; so do the states and options of optimizers, which a script may have loaded on rank 0 alone.
    ``process_group`` (None: the default group) runs on the backend ``tutti``; ``do_flatten`` has no effect. The module's
    ``bagua_algorithm`` is ``algorithm``; a second call replaces that of the first. Errors are those of
    DistributedDataParallel.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"with_bagua: algorithm is a {type(algorithm).__name__}; give an algorithm of "
                        "bagua.torch_api.algorithms, such as ByteGradAlgorithm()")
    if KEPT_AS in vars(self):
        # The wrapper ends here, and its optimizer may be that of the next one.
        if vars(self)[KEPT_AS].wrapper is not None:
            vars(self)[KEPT_AS].wrapper._leave_optimizers()
        del vars(self)[KEPT_AS]
    wrapper = tutti.torch.DistributedDataParallel(self, optimizers, algorithm.strategy, process_group)
    for optimizer in wrapper._optimizers:
        wrapper.broadcast_optimizer(optimizer)
    # No attribute that torch knows: the wrapper has the module inside, and is no part of the module.
    vars(self)[KEPT_AS] = _Kept(wrapper)
    self.bagua_algorithm = algorithm
    return self


def wrapper_of(model: torch.nn.Module) -> tutti.torch.DistributedDataParallel:
    """What exchanges the gradients or weights of ``model``. ValueError unless ``model.with_bagua`` was called."""
    wrapper = getattr(vars(model).get(KEPT_AS), "wrapper", None)
    if wrapper is None:
        raise ValueError(f"this {type(model).__name__} is not trained by an algorithm: call model.with_bagua([optimizer], "
                         "algorithm) before")
    return wrapper
