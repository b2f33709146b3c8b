"""Process groups of single owners: their calls never meet those of another owner or of the script.

Ranks make an owner's calls at different moments: a gradient that a rank lacks is sent in ``step()``, while other ranks
have sent theirs in ``backward()``. Calls of one process group are matched by their order alone.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, MutableMapping

import torch
import torch.distributed as dist

import tutti.torch


class _State:
    """The groups of the default group ``world``, and those who own them."""

    world: dist.ProcessGroup | None = None
    groups: list[dist.ProcessGroup] = []
    # By numbers that are equal on all ranks. Python ends an owner earlier on one rank than on another.
    owners: MutableMapping[int, "OwnGroup"] = weakref.WeakValueDictionary()
    next_number = 0


class OwnGroup:
    """A process group of all ranks for calls on ``devices()``. Collective: all ranks make theirs in one order."""

    def __init__(self, devices: Callable[[], Iterable[torch.device]]) -> None:
        self._devices = devices
        self._world: dist.ProcessGroup | None = None
        number = _State.next_number
        _State.next_number += 1
        self._join()
        _State.owners[number] = self

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group; ValueError where it ended with its world, and ``make_anew()`` has made no other."""
        if self._world is not dist.group.WORLD:
            raise ValueError("hvd.DistributedOptimizer: the process group in which the optimizer was made has ended: call "
                             "hvd.init() on all ranks, and make an optimizer that one of them has not kept anew")
        return self._group

    def _join(self) -> None:
        if self._world is dist.group.WORLD:
            return
        _leave_unowned()
        timeout = tutti.torch._backend_of(dist.group.WORLD, "hvd.DistributedOptimizer").timeout
        self._group = dist.new_group(timeout=timeout)
        _State.groups.append(self._group)
        for device in sorted({device for device in self._devices() if device.type != "cpu"}, key=str):
            # Joins on the GPU now: first calls that ranks make in different orders would wait for each other.
            dist.all_reduce(torch.zeros(1, device=device), group=self._group)
        self._world = dist.group.WORLD


def _leave_unowned() -> None:
    """Leaves groups whose owners have ended. Not when an owner ends: Python may end it while torch walks its tables."""
    if _State.world is not dist.group.WORLD:
        _State.world, _State.groups = dist.group.WORLD, []  # torch has ended the groups with their world
    owned = [owner._group for owner in _State.owners.values()]
    for group in _State.groups:
        if group not in owned:
            dist.destroy_process_group(group)
    _State.groups = [group for group in _State.groups if group in owned]


def make_anew() -> None:
    """Gives each owner that all ranks still have a group of the world of now. Collective."""
    mine = dict(_State.owners)
    of_ranks: list[list[int]] = [[]] * dist.get_world_size()
    dist.all_gather_object(of_ranks, list(mine))
    _State.owners.clear()
    for number in sorted(set.intersection(*map(set, of_ranks))):
        mine[number]._join()
        _State.owners[len(_State.owners)] = mine[number]
    _State.next_number = len(_State.owners)


def begin_barriers() -> None:
    """Lets ranks that are in an owner's calls, which this rank will not make, end with an error that names both calls."""
    gc.collect()  # an optimizer that the scripts of all ranks have dropped may live on in cycles of references on some
    for owner in _State.owners.values():
        dist.barrier(owner.group, async_op=True)
