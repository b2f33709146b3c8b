"""The weights that the ranks start from, equal before optimizers are made of them."""

import torch
import torch.distributed as dist
from torch.distributed.utils import _sync_params_and_buffers

from tutti.compat.horovod.torch import agreement
from tutti.torch.distributed_data_parallel import ignored_in

_BUCKET_BYTES = 250 * 2**20  # as in torch's DistributedDataParallel


def make_equal(module: torch.nn.Module, buffers: bool) -> None:
    """Gives all ranks the parameters of ``module`` on rank 0, and with ``buffers`` the buffers. Collective.

    Leaves alone what each rank has for itself. ValueError, on all ranks, names the rank whose module is another one.
    """
    ignored = ignored_in(module)
    every = [*module.named_parameters(), *(module.named_buffers() if buffers else ())]
    tensors = [(name, tensor.detach()) for name, tensor in every
               if name not in ignored and not torch.nn.parameter.is_lazy(tensor)]  # lazy ones the wrapper refuses
    agreement.agree(type(module).__name__, [(name, agreement.facts_of(tensor)) for name, tensor in tensors],
                    "make the same module on all ranks")
    _sync_params_and_buffers(dist.group.WORLD, [tensor for _, tensor in tensors], _BUCKET_BYTES, src=0)
