"""The GPUs of these tests, which work in memory of the host. tests/gpu/torch/gpus.py has the same names for a real GPU."""

import torch

import rank_threads

REAL = False


def gpu(index):
    return torch.device("cuda", index)


def run_ranks(size, function, backend="tutti"):
    """Returns what `function(rank, gpu)` returned on each rank, which has a GPU of its own."""
    return rank_threads.run_ranks(size, function, backend)


def place(rank, size):
    """What Lightning asks of a rank: its number among those of its machine, the GPUs there, and the number of machines."""
    return rank, size, 1


def assert_same_as_on_host(on_gpu, on_host):
    assert torch.equal(on_gpu.cpu(), on_host.cpu())
