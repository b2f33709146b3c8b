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
    every = [*module.named_parameters(remove_duplicate=False),
             *(module.named_buffers(remove_duplicate=False) if buffers else ())]
    # By tensor: one of several names, of which not all are ignored, travels once.
    names = {tensor: name for name, tensor in every if name not in ignored and _travels(tensor)}
    tensors = [(name, tensor.detach()) for tensor, name in names.items()]
    agreement.agree(type(module).__name__, [(name, agreement.facts_of(tensor)) for name, tensor in tensors],
                    "make the same module on all ranks")
    _sync_params_and_buffers(dist.group.WORLD, [tensor for _, tensor in tensors], _BUCKET_BYTES, src=0)


def _travels(tensor: torch.Tensor) -> bool:
    """Whether torch can broadcast ``tensor``: others the wrapper refuses by name, or makes equal itself."""
    if torch.nn.parameter.is_lazy(tensor) or tensor.layout != torch.strided or tensor.is_quantized:
        return False
    return all(step or size <= 1 for step, size in zip(tensor.stride(), tensor.shape))  # not one that expand() returned
