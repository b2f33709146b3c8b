"""``torch.nn.Module.with_bagua``, which old scripts call on their model."""

import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import tutti.torch
from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm
from tutti.torch.checks import check_optimizer
from tutti.torch.distributed_data_parallel import _optimizers_in
from tutti.torch.qadam import QAdam

_KEPT_AS = "_tutti_replicas"  # the attribute of a module that with_bagua was called on, a _Kept


class _Kept:
    """Keeps the wrapper of a module as long as the module; a copy of the module has none, and is not exchanged.

    The module does not have the wrapper as an attribute of its own: those who walk over modules would go in circles.
    """

    def __init__(self, wrapper: "_Wrapper | None" = None) -> None:
        self.wrapper = wrapper

    def __reduce__(self) -> tuple[Any, ...]:
        return _Kept, ()


class _Wrapper(tutti.torch.DistributedDataParallel):
    """What exchanges for a module, which keeps it."""

    def __init__(self, module: torch.nn.Module, *arguments: Any) -> None:
        super().__init__(module, *arguments)
        # Weak: with a cycle of the two the model would stay in memory until Python's collector finds it.
        vars(self)["_modules"] = weakref.WeakValueDictionary(self._modules)
        this = weakref.ref(self)

        def end() -> None:
            wrapper = this()
            if wrapper is not None:  # somebody keeps it
                wrapper._stop("the model of this wrapper is gone: keep the model")

        self._when_module_goes = weakref.finalize(module, end)
        self._when_module_goes.atexit = False

    def _take(self, optimizer: torch.optim.Optimizer) -> None:
        """Adds the optimizer, with the state and the options of rank 0's."""
        if self.strategy.startswith("qadam"):
            # The ranks compare the options of a QAdam when it is added, and it has no state of its own before.
            self._broadcast_from(optimizer, super(QAdam, optimizer) if isinstance(optimizer, QAdam) else optimizer)
        self.add_optimizer(optimizer)
        self.broadcast_optimizer(optimizer)
        if isinstance(optimizer, QAdam):
            optimizer._mark_states()  # to which torch has given the type of the weights

    def _begin_update(self, uses_gradients: bool, optimizer: int = 0) -> None:
        # Bagua counts iterations, of which the steps of several optimizers do not tell the end. one_step() has number 0.
        if optimizer and len(self._optimizers) > 1 and self._replicas.exchanges_weights:
            raise ValueError(f"with_bagua has {len(self._optimizers)} optimizers, and each step of one would count as a step "
                             f"of {self.strategy.partition(':')[0]}: write the steps of an iteration inside `with "
                             "model.bagua_ddp.one_step():`, or make one optimizer with several groups of parameters")
        super()._begin_update(uses_gradients, optimizer)

    def _end(self, why: str) -> None:
        """Ends the exchange, also where somebody keeps this wrapper: every use of it is an error that says why."""
        self._leave_optimizers()
        self._stop(why)

    def _stop(self, why: str) -> None:
        """Ends the exchange without the optimizers, whose state goes with it."""
        self._when_module_goes.detach()
        for hook in self._hooks:
            hook.remove()
        self._optimizers, self._hooks = [], []
        self._replicas = _Ended(why)

    def _refuse(self, why: str) -> None:
        """Makes each backward of the module an error that says why, after this wrapper has ended."""

        def refuse(_: torch.Tensor) -> NoReturn:
            raise ValueError(why)

        self._hooks = [parameter.register_post_accumulate_grad_hook(refuse)
                       for parameter in self.module.parameters() if parameter.requires_grad]
        self._replicas = _Ended(why)


class _Ended:
    """In the place of the replicas of a wrapper that has ended: every use is an error."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, _: str) -> NoReturn:
        raise ValueError(self._why)


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
    second call replaces those of the first. Errors are those of DistributedDataParallel. A TypeError about ``optimizers``
    or ``algorithm`` of a second call leaves those of the first; after any other of its errors a backward of the module is
    an error, until with_bagua is called again.
    """
    if not isinstance(algorithm, Algorithm):
        raise TypeError(f"with_bagua: algorithm is a {type(algorithm).__name__}; give an algorithm of "
                        "bagua.torch_api.algorithms, such as ByteGradAlgorithm()")
    optimizers = _optimizers_in(optimizers)
    for optimizer in optimizers:
        check_optimizer(optimizer)
    kept = vars(self).get(_KEPT_AS)
    former = None if kept is None else kept.wrapper
    if former is not None and former._modules.get("module") is not self:
        former = None  # that of a module of which this one is a shallow copy
    if former is not None:
        former._end("this wrapper ended when with_bagua was called again: use model.bagua_ddp, which is another one now")
    vars(self).pop("bagua_algorithm", None)
    wrapper = None
    try:
        wrapper = _Wrapper(self, None, algorithm.strategy, process_group)
        for optimizer in optimizers:
            wrapper._take(optimizer)
    except BaseException as error:
        if former is not None:
            former._refuse(f"no algorithm trains this {type(self).__name__} since with_bagua failed: call it again "
                           f"({error})")
        if wrapper is not None:  # which the traceback of the error keeps
            wrapper._end("with_bagua failed with this wrapper")
        raise
    # No attribute that torch knows: the wrapper has the module inside, and is no part of the module.
    vars(self)[_KEPT_AS] = _Kept(wrapper)
    self.bagua_algorithm = algorithm
    return self


@property
@torch.jit.unused  # torch.jit.script would compile it, as a property of every module
def bagua_ddp(self: torch.nn.Module) -> tutti.torch.DistributedDataParallel | None:
    """What exchanges for the module since ``with_bagua``; None in a copy, and where it was not called."""
    kept = getattr(self, _KEPT_AS, None)  # torch.compile's module has the attributes of the one inside
    return None if kept is None else kept.wrapper


def wrapper_of(model: torch.nn.Module) -> tutti.torch.DistributedDataParallel:
    """What exchanges the gradients or weights of ``model``. ValueError unless ``model.with_bagua`` was called."""
    wrapper = model.bagua_ddp
    if wrapper is None:
        raise ValueError(f"this {type(model).__name__} is not trained by an algorithm: call model.with_bagua([optimizer], "
                         "algorithm) before")
    return wrapper
