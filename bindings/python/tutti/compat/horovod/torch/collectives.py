"""Horovod's collectives beside allreduce, over those of ``torch.distributed``. Each has a gradient, as Horovod's.

Gradients of ``allgather`` and ``broadcast`` are averages over the ranks, as those of Horovod since 0.22.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tutti.compat.horovod.torch import agreement, world
from tutti.compat.horovod.torch.allreduce import allreduce_


def _first_dimensions(tensor: torch.Tensor) -> list[int]:
    """How many rows the tensor of each rank has; ValueError, on all ranks, unless all rows have one shape."""
    of_row = tuple(tensor.shape[1:])
    counts, shapes = zip(*agreement.gather(len(tensor), agreement.digest(of_row)))
    if len(set(shapes)) > 1:
        agreement.agree("hvd.allgather", [("rows of shape", str(of_row))],
                        "tensors may differ in their first dimension alone")
    return list(counts)


class _AllGather(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.rows = rows = _first_dimensions(tensor)
        # Ranks may have different numbers of rows, and all_gather wants equal ones.
        padded = tensor.new_zeros((max(rows), *tensor.shape[1:]))
        padded[:len(tensor)] = tensor
        gathered = tensor.new_empty((len(rows), *padded.shape))
        dist.all_gather_into_tensor(gathered, padded)
        return torch.cat([gathered[rank, :count] for rank, count in enumerate(rows)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return allreduce_(gradient.contiguous().clone()).split(ctx.rows)[world.rank()]


class _Broadcast(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
        ctx.root_rank = root_rank
        return broadcast_(tensor.detach().clone(memory_format=torch.contiguous_format), root_rank)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        average = allreduce_(gradient.contiguous().clone())
        return (average if world.rank() == ctx.root_rank else torch.zeros_like(average)), None


class _AllToAll(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, given: list[int], taken: list[int]) -> torch.Tensor:
        ctx.given, ctx.taken = given, taken
        received = tensor.new_empty((sum(taken), *tensor.shape[1:]))
        dist.all_to_all_single(received, tensor.contiguous(), taken, given)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _AllToAll.apply(gradient, ctx.taken, ctx.given), None, None


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The tensors of all ranks, concatenated on dimension 0, where they may differ.

    Today: ``torch.distributed.all_gather_into_tensor``.
    """
    world.check_initialized()
    return _AllGather.apply(tensor.reshape(1) if tensor.dim() == 0 else tensor)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Gives ``tensor`` the value that it has on ``root_rank``, and returns it."""
    world.check_initialized()
    dist.broadcast(tensor, root_rank)
    return tensor


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The ``tensor`` of ``root_rank``. Today: ``torch.distributed.broadcast``."""
    return _Broadcast.apply(tensor, root_rank)


def alltoall(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None = None,
             name: str | None = None) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Gives each rank its rows of ``tensor``: ``splits[r]`` rows to rank r, or equal parts where it is None.

    Returns the rows from all ranks, and, where ``splits`` is given, how many rows came from each.
    Today: ``torch.distributed.all_to_all_single``.
    """
    size = world.size()
    if splits is None:
        if len(tensor) % size:
            raise ValueError(
                f"hvd.alltoall: rank {world.rank()}: tensor has {len(tensor)} rows, which do not split into "
                f"{size} equal parts; give splits")
        given = taken = [len(tensor) // size] * size
        return _AllToAll.apply(tensor, given, taken)
    given = [int(count) for count in splits]
    if len(given) != size or sum(given) != len(tensor):
        raise ValueError(
            f"hvd.alltoall: rank {world.rank()}: splits={given}; give {size} numbers, one for each rank, whose "
            f"sum is {len(tensor)}, the number of rows")
    received = torch.empty(size, dtype=torch.int64)
    dist.all_to_all_single(received, torch.tensor(given))
    return _AllToAll.apply(tensor, given, received.tolist()), received
