"""What old scripts import as ``bagua.torch_api``: the process group, and who this process is."""

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  registers the backend and tutti://
from tutti.compat import missing_names
from tutti.compat.bagua.torch_api import algorithms, env
from tutti.compat.bagua.torch_api.env import get_local_rank, get_local_size, get_rank, get_world_size
from tutti.compat.bagua.torch_api.with_bagua import bagua_ddp, with_bagua

__all__ = [
    "algorithms", "env", "get_local_rank", "get_local_size", "get_rank", "get_world_size", "init_process_group"
]

torch.nn.Module.with_bagua = with_bagua
torch.nn.Module.bagua_ddp = bagua_ddp


def init_process_group(store: dist.Store | None = None, rank: int = -1, world_size: int = -1) -> None:
    """Makes the default process group on the backend ``tutti``; today: ``init_process_group("tutti")``.

    Rank and size come from torchrun, mpirun or srun, unless ``store``, ``rank`` and ``world_size`` are given. Where the
    script has made the default group before, this is a ValueError unless the group runs on ``tutti``, and then does nothing.
    """
    if dist.is_initialized():
        _check_default_group()
    elif store is None:
        dist.init_process_group("tutti", init_method="tutti://", rank=rank, world_size=world_size)
    else:
        dist.init_process_group("tutti", store=store, rank=rank, world_size=world_size)


def _check_default_group() -> None:
    """Raises ValueError unless the default group, which there is, runs on the backend ``tutti``."""
    try:
        tutti.torch._backend_of(dist.group.WORLD, "init_process_group")
    except ValueError:
        # No name of its backend: torch says "undefined" where the script has given none.
        raise ValueError(
            "bagua.torch_api.init_process_group: the script has made a process group on another backend before, and "
            "with_bagua needs tutti: drop torch.distributed.init_process_group(…) before this call, or give it \"tutti\""
        ) from None


__getattr__ = missing_names.getattr_of("bagua.torch_api")
