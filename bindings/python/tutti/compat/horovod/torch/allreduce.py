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

    def __init__(self, work: dist.Work, tensor: torch.Tensor) -> None:
        self._work = work
        self._tensor = tensor


def poll(handle: Handle) -> bool:
    """Whether the call of ``handle`` has ended, so that ``synchronize`` returns at once."""
    return handle._work.is_completed()


def synchronize(handle: Handle) -> torch.Tensor:
    """Waits for the call of ``handle``; returns its result."""
    handle._work.wait()
    return handle._tensor


def checked_op(op: Any, average: bool | None = None) -> dist.ReduceOp:
    """The operator that ``op=`` and the older ``average=`` name; ValueError says what is wrong with them."""
    if average is not None and op is not None:
        raise ValueError("hvd.allreduce: average and op are both given; give op alone, hvd.Average or hvd.Sum")
    if op is Adasum:
        raise ValueError("hvd.Adasum: Tutti does not have it; use hvd.Average, or the strategy decentralized of "
                         "tutti.torch.DistributedDataParallel, which mixes weights")
    if average is not None:
        return Average if average else Sum
    return Average if op is None else op


def allreduce_async_(tensor: torch.Tensor,
                     average: bool | None = None,
                     name: str | None = None,
                     op: Any = None) -> Handle:
    """Begins to reduce ``tensor`` over all ranks in place."""
    world.check_initialized()
    return Handle(dist.all_reduce(tensor, op=checked_op(op, average), async_op=True), tensor)


def allreduce_async(tensor: torch.Tensor,
                    average: bool | None = None,
                    name: str | None = None,
                    op: Any = None) -> Handle:
    """Begins to reduce ``tensor`` over all ranks; the result is a tensor of its own."""
    return allreduce_async_(tensor.detach().clone(memory_format=torch.contiguous_format), average, name, op)


def allreduce_(tensor: torch.Tensor,
               average: bool | None = None,
               name: str | None = None,
               op: Any = None) -> torch.Tensor:
    """Reduces ``tensor`` over all ranks in place, and returns it."""
    return synchronize(allreduce_async_(tensor, average, name, op))


class _AllReduce(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, op: dist.ReduceOp) -> torch.Tensor:
        ctx.op = op
        return synchronize(allreduce_async(tensor, op=op))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.op not in (Average, Sum):
            raise NotImplementedError(
                "hvd.allreduce: only hvd.Average and hvd.Sum have a gradient; detach() the tensor")
        return allreduce(gradient, op=ctx.op), None


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None,
              compression: Any = Compression.none, op: Any = None) -> torch.Tensor:
    """The average of ``tensor`` over all ranks, or what ``op`` says; the gradient is reduced alike.

    Today: ``torch.distributed.all_reduce``.
    """
    sent, context = compression.compress(tensor)
    return compression.decompress(_AllReduce.apply(sent, checked_op(op, average)), context)
