"""What old scripts import as ``bagua.torch_api.env``: who this process is."""

import torch.distributed as dist

from tutti.compat import launcher_identity, missing_names

__all__ = ["get_local_rank", "get_local_size", "get_rank", "get_world_size"]


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


__getattr__ = missing_names.getattr_of("bagua.torch_api.env")
