"""Horovod's DistributedOptimizer: gradients are averaged while backward runs, and the step waits for them."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakIdKeyDictionary

from tutti.compat.horovod.torch import agreement, world
from tutti.compat.horovod.torch.allreduce import Average, checked_op
from tutti.compat.horovod.torch.compression import Compression
from tutti.compat.horovod.torch.own_group import OwnGroup

# Each parameter's hook, so that a later optimizer of the parameter replaces it. An attribute of the parameter would be
# saved with the model.
_hooks: MutableMapping[torch.nn.Parameter, RemovableHandle] = WeakIdKeyDictionary()


def DistributedOptimizer(optimizer: torch.optim.Optimizer,
                         named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
                         compression: Any = Compression.none, backward_passes_per_step: int = 1, op: Any = Average,
                         gradient_predivide_factor: float = 1.0, num_groups: int = 0, groups: Any = None,
                         sparse_as_dense: bool = False) -> torch.optim.Optimizer:
    """Lets ``optimizer`` average gradients over all ranks; returns it, with more methods. Collective.

    All ranks make their optimizers in one order: each gets a process group of its own, so that its gradients meet only
    its own, whatever other calls ranks make between ``backward()`` and ``step()``. ValueError, on all ranks, where the
    optimizers have parameters of other names, types or shapes, or in another order.
    A copy of each gradient is sent as soon as it has been computed in ``backward_passes_per_step`` backward passes, whose
    sum it is. ``step()`` waits for all of them, and writes the averages over the gradients. A parameter that no backward
    has reached gets a gradient of zeros, averaged with that of the others. To change gradients after the average and
    before the step:

        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()

    With ``sparse_as_dense`` sparse gradients become dense ones before they are sent. ``gradient_predivide_factor``, which
    parts the division of the average, is for ``op=hvd.Average`` alone; it, ``num_groups`` and ``groups`` have no effect.

    Today: DistributedDataParallel with the backend ``tutti``, and the optimizer as it is.
    """
    world.check_initialized()
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"hvd.DistributedOptimizer: optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    if hasattr(optimizer, "skip_synchronize"):
        raise ValueError("hvd.DistributedOptimizer: optimizer is one of hvd.DistributedOptimizer already")
    if backward_passes_per_step < 1:
        raise ValueError(
            f"hvd.DistributedOptimizer: backward_passes_per_step={backward_passes_per_step}; give 1 or more")
    named = None if named_parameters is None else list(named_parameters)
    if named is not None:
        _check_names(named, optimizer)
    op = checked_op("hvd.DistributedOptimizer", op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(f"hvd.DistributedOptimizer: gradient_predivide_factor={gradient_predivide_factor} is for "
                         "op=hvd.Average; leave it out")
    agreement.agree("hvd.DistributedOptimizer", _fields_of(optimizer, named or []),
                    "give all ranks' optimizers the same parameters in one order")
    _Exchange(optimizer, compression, backward_passes_per_step, op, sparse_as_dense).attach()
    return optimizer


def _check_names(named: list[tuple[str, torch.nn.Parameter]], optimizer: torch.optim.Optimizer) -> None:
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"hvd.DistributedOptimizer: named_parameters has {', '.join(twice)} more than once; give "
                         "model.named_parameters()")
    known = {id(parameter) for _, parameter in named}
    missing = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
    if missing:
        raise ValueError(
            f"hvd.DistributedOptimizer: named_parameters lacks {len(missing)} parameters of the optimizer, the "
            f"first of shape {missing[0]}; give the names of all, or leave named_parameters out")


def _fields_of(optimizer: torch.optim.Optimizer, named: list[tuple[str, torch.nn.Parameter]]) -> agreement.Fields:
    """What ranks compare of the parameters of ``optimizer``."""
    names = {id(parameter): name for name, parameter in reversed(named)}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [(names.get(id(parameter), f"parameter[{index}]"),
             agreement.facts_of(parameter) + ("" if parameter.requires_grad else " (frozen)"))
            for index, parameter in enumerate(parameters)]


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


class _Exchange:
    """The gradients of one optimizer on their way."""

    def __init__(self, optimizer: torch.optim.Optimizer, compression: Any, passes: int, op: dist.ReduceOp,
                 sparse_as_dense: bool) -> None:
        self._optimizer = optimizer
        self._compression = compression
        self._passes = passes
        self._op = op
        self._sparse_as_dense = sparse_as_dense
        self._parameters: list[torch.nn.Parameter] = []
        self._counts: list[int] = []  # backward passes of each parameter since the last step
        # What was sent for the first parameters of the list: the call, the gradient and its version, what travels, and
        # its context. All ranks send in the order of the list, whatever the order in which their backward computes.
        self._sent: list[tuple[dist.Work, torch.Tensor, int, torch.Tensor, Any]] = []
        self._copies: dict[int, torch.Tensor] = {}  # memory for copies of gradients, by the number of the parameter
        self._is_synchronized = False
        self._skips = 0
        self._own = OwnGroup(lambda: (p.device for group in optimizer.param_groups for p in group["params"]))

    def attach(self) -> None:
        """Gives the optimizer the methods of Horovod's, and lets its step wait for the gradients."""
        self._watch_new_parameters()
        optimizer = self._optimizer
        optimizer.synchronize = self.synchronize
        optimizer.skip_synchronize = self.skip_synchronize
        optimizer.set_backward_passes_per_step = self.set_backward_passes_per_step
        optimizer.zero_grad = self._checking_zero_grad(optimizer.zero_grad)
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)

    def synchronize(self) -> None:
        """Waits until all gradients of this step are averaged. Collective."""
        self._watch_new_parameters()
        while len(self._sent) < len(self._parameters):
            self._send_next()
        changed: list[torch.Size] = []
        for parameter, (work, gradient, version, sent, context) in zip(self._parameters, self._sent, strict=True):
            work.wait()
            if parameter.grad is not gradient or gradient._version != version:
                changed.append(gradient.shape)
                parameter.grad = gradient  # so that a script that goes on after the error has the average
            gradient.detach().copy_(self._compression.decompress(sent, context))
        self._sent.clear()
        self._counts = [0] * len(self._parameters)
        self._is_synchronized = True
        if changed:
            raise RuntimeError(
                f"rank {world.rank()}: {len(changed)} gradient(s), the first of shape {tuple(changed[0])}, were changed "
                "or replaced while they were on their way: call optimizer.synchronize() before gradients are clipped or "
                "unscaled, and optimizer.step() inside optimizer.skip_synchronize()")

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Lets ``step()`` inside take gradients as they are, after ``synchronize()``."""
        self._skips += 1
        try:
            yield
        finally:
            self._skips -= 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes there are for each step."""
        self._passes = passes

    def _watch_new_parameters(self) -> None:
        """Lets all parameters of the optimizer count their backward passes, also those that came or were unfrozen."""
        watched = set(map(id, self._parameters))
        # The last layer of a model comes first, since its gradients do, too.
        for parameter in (p for group in reversed(self._optimizer.param_groups) for p in reversed(group["params"])):
            if id(parameter) in watched or not parameter.requires_grad:
                continue
            if parameter in _hooks:
                _hooks[parameter].remove()
            _hooks[parameter] = parameter.register_post_accumulate_grad_hook(self._hook_of(len(self._parameters)))
            self._parameters.append(parameter)
            self._counts.append(0)

    def _hook_of(self, index: int) -> Callable[[torch.nn.Parameter], None]:
        # A weak reference: Python's garbage collector does not see hooks that torch keeps.
        count_pass = weakref.WeakMethod(self._count_pass)

        def hook(parameter: torch.nn.Parameter) -> None:
            if (of_optimizer := count_pass()) is not None:
                of_optimizer(index, parameter)

        return hook

    def _count_pass(self, index: int, parameter: torch.nn.Parameter) -> None:
        if self._counts[index] >= self._passes:
            raise RuntimeError(
                f"rank {world.rank()}: a gradient of shape {tuple(parameter.shape)} was computed more than "
                f"backward_passes_per_step={self._passes} times before optimizer.step(): give "
                "hvd.DistributedOptimizer a larger backward_passes_per_step")
        self._counts[index] += 1
        self._is_synchronized = False
        while len(self._sent) < len(self._parameters) and self._counts[len(self._sent)] >= self._passes:
            self._send_next()

    def _send_next(self) -> None:
        parameter = self._parameters[len(self._sent)]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)  # another rank may have computed one
        if parameter.grad.is_sparse:
            if not self._sparse_as_dense:
                raise NotImplementedError(
                    f"hvd.DistributedOptimizer: rank {world.rank()}: the gradient of a parameter of shape "
                    f"{tuple(parameter.shape)} is sparse; make the embedding with sparse=False, or say "
                    "sparse_as_dense=True")
            parameter.grad = parameter.grad.to_dense()
        sent, context = self._compression.compress(parameter.grad)
        if _share_memory(sent, parameter.grad):
            sent = self._copy_of_next(sent)
        work = dist.all_reduce(sent, op=self._op, group=self._own.group, async_op=True)
        self._sent.append((work, parameter.grad, parameter.grad._version, sent, context))

    def _copy_of_next(self, gradient: torch.Tensor) -> torch.Tensor:
        """What is sent of the next parameter. A script may write to ``grad.data`` meanwhile, which no version tells of.

        The memory of copies is kept: new memory in each step costs more than the copy.
        """
        index = len(self._sent)
        copy = self._copies.get(index)
        if copy is None or (copy.shape, copy.dtype, copy.device) != (gradient.shape, gradient.dtype, gradient.device):
            copy = self._copies[index] = torch.empty(gradient.shape, dtype=gradient.dtype, device=gradient.device)
        return copy.copy_(gradient.detach())

    def _before_update(self) -> None:
        if self._skips == 0:
            if not self._is_synchronized:
                self.synchronize()
        elif self._sent:
            raise RuntimeError(
                f"rank {world.rank()}: optimizer.step() inside optimizer.skip_synchronize(), while gradients "
                "are on their way: call optimizer.synchronize() before")

    def _before_step(self, _optimizer: torch.optim.Optimizer, arguments: tuple,
                     keywords: dict) -> tuple[tuple, dict] | None:
        closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")
        if closure is None:
            self._before_update()
            return None

        def synchronized_closure() -> Any:
            loss = closure()
            self._before_update()
            return loss

        return (arguments[0], *arguments[2:]), {**keywords, "closure": synchronized_closure}

    def _after_step(self, *_: Any) -> None:
        self._is_synchronized = False

    def _checking_zero_grad(self, original: Callable[..., None]) -> Callable[..., None]:

        @functools.wraps(original)
        def zero_grad(*arguments: Any, **keywords: Any) -> None:
            if self._sent:
                raise RuntimeError(f"rank {world.rank()}: optimizer.zero_grad() while gradients are on their way: call "
                                   "optimizer.step() or optimizer.synchronize() after loss.backward()")
            original(*arguments, **keywords)

        return zero_grad
