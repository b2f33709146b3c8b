"""Horovod's allreduce, over ``torch.distributed.all_reduce``."""

from typing import Any

import torch
import torch.distributed as dist

from tutti.compat.horovod.torch import world
from tutti.compat.horovod.torch.compression import Compression

Average = dist.ReduceOp.AVG
Sum = dist.ReduceOp.SUM
Min = dist.ReduceOp.MIN
Max = dist.ReduceOp.MAX
Product = dist.ReduceOp.PRODUCT
Adasum = "Adasum"


class Handle:
    """A call under way; ``synchronize(handle)`` waits for it, ``poll(handle)`` asks whether it has ended."""

    def __init__(self, work: dist.Work, tensor: torch.Tensor, postscale_factor: float) -> None:
        self._work = work
        self._tensor = tensor
        self._postscale_factor = postscale_factor


def poll(handle: Handle) -> bool:
    """Whether the call of ``handle`` has ended, so that ``synchronize`` returns at once."""
    return handle._work.is_completed()


def synchronize(handle: Handle) -> torch.Tensor:
    """Waits for the call of ``handle``; returns its result."""
    handle._work.wait()
    _scale(handle._tensor, handle._postscale_factor)
    handle._postscale_factor = 1.0  # a second call changes nothing
    return handle._tensor


def _scale(tensor: torch.Tensor, factor: float) -> None:
    if factor == 1.0:
        return
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.detach().mul_(factor)
    else:
        tensor.detach().copy_(tensor.detach() * factor)  # rounds towards 0


def checked_op(call: str, op: Any, average: bool | None = None) -> dist.ReduceOp:
    """The operator that ``op=`` and the older ``average=`` of ``call`` name; ValueError says what is wrong with them."""
    if average is not None and op is not None:
        raise ValueError(f"{call}: average and op are both given; give op alone, hvd.Average or hvd.Sum")
    if op is Adasum:
        raise ValueError("hvd.Adasum: Tutti does not have it; use hvd.Average, or the strategy decentralized of "
                         "tutti.torch.DistributedDataParallel, which mixes weights")
    if average is not None:
        return Average if average else Sum
    if op is not None and not isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        raise ValueError(f"{call}: op={op!r}; give hvd.Average, hvd.Sum, hvd.Min, hvd.Max or hvd.Product")
    return Average if op is None else op


def allreduce_async_(tensor: torch.Tensor,
                     average: bool | None = None,
                     name: str | None = None,
                     op: Any = None,
                     prescale_factor: float = 1.0,
                     postscale_factor: float = 1.0) -> Handle:
    """Begins to reduce ``tensor`` over all ranks in place; factors multiply it before, and the result."""
    world.check_initialized()
    op = checked_op("hvd.allreduce", op, average)
    _scale(tensor, prescale_factor)
    return Handle(dist.all_reduce(tensor, op=op, async_op=True), tensor, postscale_factor)


def allreduce_async(tensor: torch.Tensor,
                    average: bool | None = None,
                    name: str | None = None,
                    op: Any = None,
                    prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0) -> Handle:
    """Begins to reduce ``tensor`` over all ranks; the result is a tensor of its own."""
    return allreduce_async_(tensor.detach().clone(memory_format=torch.contiguous_format), average, name, op,
                            prescale_factor, postscale_factor)


def allreduce_(tensor: torch.Tensor,
               average: bool | None = None,
               name: str | None = None,
               op: Any = None,
               prescale_factor: float = 1.0,
               postscale_factor: float = 1.0) -> torch.Tensor:
    """Reduces ``tensor`` over all ranks in place, and returns it."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor))


class _AllReduce(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: dist.ReduceOp, *factors: float) -> torch.Tensor:
        ctx.op = op
        ctx.factors = factors
        return synchronize(allreduce_async(tensor, None, None, op, *factors))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if ctx.op not in (Average, Sum):
            raise NotImplementedError(
                "hvd.allreduce: only hvd.Average and hvd.Sum have a gradient; detach() the tensor")
        return _AllReduce.apply(gradient, ctx.op, *ctx.factors), None, None, None


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
              compression: Any = Compression.none, op: Any = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0) -> torch.Tensor:
    """The average of ``tensor`` over all ranks, or what ``op`` says; the gradient is reduced alike.

    ``prescale_factor`` multiplies what the ranks give, and ``postscale_factor`` the result.
    Today: ``torch.distributed.all_reduce``.
    """
    sent, context = compression.compress(tensor)
    reduced = _AllReduce.apply(sent, checked_op("hvd.allreduce", op, average), prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)
