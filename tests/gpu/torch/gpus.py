"""The real GPU of this machine, for the tests of tests/python/gpu, which import these names, and those of this folder.

Nothing here asks for the GPU: ranks are forked, and CUDA does not work in a process whose parent has used it.
"""

import io
import os

import torch

import ranks

REAL = True
# NCCL refuses two ranks on one GPU unless their hosts have different names; ranks on different hosts talk over sockets.
# By itself Tutti would stage the messages of such ranks.
for name, value in {
        "TUTTI_GPU_TRANSPORT": "nccl",
        "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_RAS_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0",
        "NCCL_MAX_CTAS": "4",  # kernels of several ranks fit on the GPU together
}.items():
    os.environ.setdefault(name, value)


def gpu(index):
    """The one GPU, whichever is asked for."""
    return torch.device("cuda", 0)


def _use_gpu(rank):
    """Prepares the process of a rank; returns what init_process_group is told."""
    os.environ["NCCL_HOSTID"] = f"tutti-rank-{rank}"
    torch.cuda.set_device(gpu(0))
    return {"device_id": gpu(0)}


def _packed(rank, function):
    file = io.BytesIO()  # a tensor by itself would live no longer than its rank
    torch.save(function(rank, gpu(0)), file)
    return file.getvalue()


def run_ranks(size, function, backend="tutti"):
    """Returns what `function(rank, gpu)` returned on each rank, which is a process; all share the GPU."""
    values = ranks.run_ranks(size, _packed, function, backend=backend, timeout=60, limit=90, prepare=_use_gpu)
    return [torch.load(io.BytesIO(value), map_location="cpu", weights_only=False) for value in values]


def place(rank, size):
    """What Lightning asks of a rank: its number among those of its machine, the GPUs there, and the number of machines."""
    return 0, 1, size


def assert_same_as_on_host(on_gpu, on_host):
    torch.testing.assert_close(on_gpu.cpu(), on_host.cpu(), atol=0.02, rtol=0)  # a codec rounds to other neighbours
