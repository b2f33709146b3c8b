"""The world of Horovod: the default process group, and which of its ranks share a machine."""

import os
import pathlib
import socket
from typing import Any, NamedTuple

import torch.distributed as dist

import tutti.torch
from tutti.compat.horovod.torch import own_group


class _Place(NamedTuple):
    """Where a rank is."""

    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class _State:
    """The process group that init() has found or made, whether it was made, and the place of this rank in it."""

    group: dist.ProcessGroup | None = None
    made_group: bool = False
    place: _Place


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Makes the default process group on the backend ``tutti``, or takes the one there is. Collective.

    Optimizers of ``DistributedOptimizer`` that were made before ``shutdown()`` go on in the new world.
    Today: ``torch.distributed.init_process_group("tutti", init_method="tutti://")``. A second call changes nothing.
    """
    for name, value in (("comm", comm), ("process_sets", process_sets)):
        if value is not None:
            raise ValueError(f"hvd.init: {name}={value!r}; leave {name} out, and make groups of some ranks with "
                             "torch.distributed.new_group(ranks)")
    if is_initialized():
        return
    _State.made_group = not dist.is_initialized()
    if _State.made_group:
        dist.init_process_group("tutti", init_method="tutti://")
    tutti.torch._backend_of(dist.group.WORLD, "hvd.init")  # ValueError where the group runs on another backend
    _State.place = _find_place()
    own_group.make_anew()
    _State.group = dist.group.WORLD


def _find_place() -> _Place:
    # Ranks that Lightning starts know nothing of the ranks beside them, so that no variable of a launcher is asked.
    machine = os.environ.get("TUTTI_NODE") or (
        socket.gethostname(), pathlib.Path("/proc/sys/kernel/random/boot_id").read_text())
    machines: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(machines, machine)
    local_ranks = [machines[:rank].count(of_rank) for rank, of_rank in enumerate(machines)]
    rank = dist.get_rank()
    local_rank = local_ranks[rank]
    return _Place(local_rank, machines.count(machine), local_ranks[:rank].count(local_rank),
                  local_ranks.count(local_rank))


def check_initialized() -> None:
    """ValueError unless ``init()`` has been called."""
    if not is_initialized():
        raise ValueError("Horovod is not initialized: call hvd.init() first")


def _place() -> _Place:
    check_initialized()
    return _State.place


def is_initialized() -> bool:
    """Whether ``init()`` has been called, and its process group is still the default one."""
    return _State.group is not None and _State.group is dist.group.WORLD


def shutdown() -> None:
    """Leaves the process group, if ``init()`` has made it."""
    if _State.made_group and is_initialized():
        dist.destroy_process_group()
    _State.group = None


def rank() -> int:
    """The rank of this process."""
    check_initialized()
    return dist.get_rank()


def size() -> int:
    """The number of ranks."""
    check_initialized()
    return dist.get_world_size()


def local_rank() -> int:
    """The rank of this process among those of its machine."""
    return _place().local_rank


def local_size() -> int:
    """The number of ranks on this machine."""
    return _place().local_size


def cross_rank() -> int:
    """The rank of this process among those that have its local rank, one on each machine."""
    return _place().cross_rank


def cross_size() -> int:
    """The number of machines that have a rank with this local rank."""
    return _place().cross_size


def barrier() -> None:
    """Returns when all ranks have called it."""
    check_initialized()
    dist.barrier()


def join(device: int = -1) -> int:
    """Returns when all ranks have called it: a barrier. The result is a rank that was there, the same on all ranks.

    Horovod's join let a rank without data take part in the calls of the others. Here such calls of the others are
    errors that name this rank: give all ranks as many batches (DistributedSampler does), or train in torch's
    DistributedDataParallel, whose ``join()`` serves uneven data. ``device`` has no effect.
    """
    check_initialized()
    own_group.begin_barriers()
    barrier()
    return size() - 1
