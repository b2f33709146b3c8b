"""The Python package of the bundle works on this machine: what of it needs no GPU."""

import os

import torch
import torch.distributed as dist

from ranks import run_ranks


def adds(rank):
    tensor = torch.full([1000], rank + 1.0)
    dist.all_reduce(tensor)
    return tensor.tolist()


def test_ranks_that_share_a_gpu_use_nccl():
    assert os.environ["TUTTI_GPU_TRANSPORT"] == "nccl"


def test_ranks_add():
    assert run_ranks(2, adds) == [[3] * 1000] * 2
