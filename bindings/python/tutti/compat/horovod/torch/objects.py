"""Horovod's exchange of parameters, of optimizers' states, and of any objects that can be pickled."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from tutti.compat.horovod.torch import agreement, world
from tutti.compat.horovod.torch.collectives import broadcast_
from tutti.torch import states


def broadcast_parameters(params: Mapping[str, Any] | Iterable[tuple[str, torch.Tensor] | torch.Tensor],
                         root_rank: int) -> None:
    """Gives all ranks the values of ``root_rank``.

    ``params`` is a ``state_dict()``, ``named_parameters()`` or ``parameters()``. The order of a dict does not count, that
    of a list does. ValueError, on all ranks, names the rank and the parameter where names, types or shapes differ.
    Not needed with DistributedDataParallel, which does so by itself.
    """
    world.check_initialized()
    named = _named(params)
    agreement.agree("hvd.broadcast_parameters", [
        (str(name), agreement.facts_of(value) if isinstance(value, torch.Tensor) else type(value).__name__)
        for name, value in named
    ], "give all ranks the same parameters, those of a list in one order")
    for name, value in named:
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise ValueError(
                f"hvd.broadcast_parameters: rank {world.rank()}: {name!r} is a {type(value).__name__}; give "
                "tensors only, and other values to hvd.broadcast_object")
        broadcast_tensor(value.detach(), root_rank)


def _named(params: Mapping[str, Any] | Iterable[Any]) -> list[tuple[str, Any]]:
    if isinstance(params, Mapping):
        return sorted(params.items())
    return [one if isinstance(one, tuple) else (f"parameter[{index}]", one) for index, one in enumerate(params)]


def broadcast_tensor(tensor: torch.Tensor, root_rank: int) -> None:
    """Gives ``tensor``, which need not be contiguous, the value that it has on ``root_rank``."""
    if tensor.is_contiguous():
        broadcast_(tensor, root_rank)
    else:
        tensor.copy_(broadcast_(tensor.contiguous(), root_rank))


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Gives all ranks the state and the options that ``optimizer`` has on ``root_rank``."""
    # On the CPU: the GPU of `root_rank` is another rank's. The optimizer puts its state where its parameters are.
    state = broadcast_object(tree_map_only(torch.Tensor, torch.Tensor.cpu, optimizer.state_dict()), root_rank)
    if world.rank() != root_rank:
        states.load_optimizer(optimizer, state, optimizer)


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None) -> Any:
    """The object that ``root_rank`` gives. Today: ``torch.distributed.broadcast_object_list``."""
    world.check_initialized()
    objects = [obj]
    dist.broadcast_object_list(objects, root_rank)
    return objects[0]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks. Today: ``torch.distributed.all_gather_object``."""
    objects: list[Any] = [None] * world.size()
    dist.all_gather_object(objects, obj)
    return objects
