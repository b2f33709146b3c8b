"""The backend under a build of torch for CUDA, on a machine without a GPU.

Calls on GPUs are tested in C++ (tests/torch), where torch has GPUs that work in memory of the host: a build of torch for
CUDA, which these tests may run under, has operators of its own for GPUs.
"""

import os
import subprocess

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks


def test_the_extension_needs_no_library_of_cuda():
    from tutti import _C
    needed = subprocess.run(["readelf", "-d", _C.__file__], capture_output=True, text=True, check=True).stdout
    libraries = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    assert "libc10.so" in libraries
    assert [name for name in libraries if "cuda" in name or "nccl" in name or "cudart" in name] == []


def asks_for_a_gpu(rank):
    from tutti import _C
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    assert isinstance(backend, _C.ProcessGroupTutti)
    assert not backend.supports_coalescing
    with pytest.raises((RuntimeError, NotImplementedError), match=r"rank \d: cuda_device 0: "):
        backend.eager_connect_single_device(torch.device("cuda:0"))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # on the CPU the group goes on
    return tensor.tolist()


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
@pytest.mark.parametrize("backend", ["tutti", "cpu:tutti,cuda:tutti"])
def test_without_a_gpu_the_reason_is_said(backend):
    assert run_ranks(2, asks_for_a_gpu, backend=backend) == [[2, 2, 2]] * 2
