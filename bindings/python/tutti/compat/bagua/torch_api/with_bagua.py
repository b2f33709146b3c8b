"""``torch.nn.Module.with_bagua``, which old scripts call on their model."""

import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import tutti.torch
from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm
from tutti.torch.grad_scaler import KEPT_AS


class _Wrapper(tutti.torch.DistributedDataParallel):
    """What exchanges for a module, which keeps it; a copy of the module has None in its place, and is not exchanged."""

    def __init__(self, module: torch.nn.Module, *arguments: Any) -> None:
        super().__init__(module, *arguments)
        # Weak: with a cycle of the two the model would stay in memory until Python's collector finds it.
        vars(self)["_modules"] = weakref.WeakValueDictionary(self._modules)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return type(None), ()

    def _end(self) -> None:
        """Ends the exchange, also where somebody keeps this wrapper: the module may have another one then."""
        self._leave_optimizers()
        for hook in self._hooks:
            hook.remove()
        self._optimizers, self._hooks = [], []
        self._replicas = _Ended()


class _Ended:
    """In the place of the replicas of a wrapper that has ended: every use is an error."""

    def __getattr__(self, _: str) -> NoReturn:
        raise ValueError("this wrapper ended when with_bagua was called again: use model.bagua_ddp, which is another one now")


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
    ``bagua_algorithm`` is ``algorithm``, and its ``bagua_ddp`` the DistributedDataParallel, which ends with the module; a
    second call replaces those of the first. Errors are those of DistributedDataParallel.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"with_bagua: algorithm is a {type(algorithm).__name__}; give an algorithm of "
                        "bagua.torch_api.algorithms, such as ByteGradAlgorithm()")
    former = vars(self).pop(KEPT_AS, None)
    if former is not None:
        former._end()
    wrapper = _Wrapper(self, optimizers, algorithm.strategy, process_group)
    for optimizer in wrapper._optimizers:
        wrapper.broadcast_optimizer(optimizer)
    # No attribute that torch knows: the wrapper has the module inside, and is no part of the module.
    vars(self)[KEPT_AS] = wrapper
    self.bagua_algorithm = algorithm
    return self


def wrapper_of(model: torch.nn.Module) -> tutti.torch.DistributedDataParallel:
    """What exchanges the gradients or weights of ``model``. ValueError unless ``model.with_bagua`` was called."""
    wrapper = vars(model).get(KEPT_AS)
    if wrapper is None:
        raise ValueError(f"this {type(model).__name__} is not trained by an algorithm: call model.with_bagua([optimizer], "
                         "algorithm) before")
    return wrapper
