"""What old scripts import as ``bagua.torch_api``: the process group, and who this process is."""

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  registers the backend and tutti://
from tutti.compat import launcher_identity, missing_names
from tutti.compat.bagua.torch_api import algorithms
from tutti.compat.bagua.torch_api.with_bagua import with_bagua

__all__ = ["algorithms", "get_local_rank", "get_local_size", "get_rank", "get_world_size", "init_process_group"]

torch.nn.Module.with_bagua = with_bagua


def init_process_group(store: dist.Store | None = None, rank: int = -1, world_size: int = -1) -> None:
    """Makes the default process group on the backend ``tutti``; today: ``init_process_group("tutti")``.

    Rank and size come from torchrun, mpirun or srun, unless ``store``, ``rank`` and ``world_size`` are given.
    """
    if store is None:
        dist.init_process_group("tutti", init_method="tutti://", rank=rank, world_size=world_size)
    else:
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world_size)


def get_rank() -> int:
    """The rank of this process; before ``init_process_group`` as the launcher says."""
    return dist.get_rank() if dist.is_initialized() else launcher_identity.read().rank


def get_world_size() -> int:
    """The number of ranks; before ``init_process_group`` as the launcher says."""
    return dist.get_world_size() if dist.is_initialized() else launcher_identity.read().size


def get_local_rank() -> int:
    """The rank of this process among those of its machine, as the launcher says."""
    return launcher_identity.read().local_rank


def get_local_size() -> int:
    """The number of ranks on this machine, as the launcher says."""
    return launcher_identity.read().local_size


__getattr__ = missing_names.getattr_of("bagua.torch_api")
