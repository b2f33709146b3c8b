"""Groups that are split, and what docs/pytorch.md says that groups cannot do."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

LIMIT = timedelta(seconds=30)


def splits(rank):
    members = [[0, 2], [1]][rank % 2]
    half = dist.group.WORLD.split_group(members, timeout=LIMIT, group_name=f"half{rank % 2}", group_desc="a half")
    assert half.size() == len(members) and half.rank() == members.index(rank)
    half.allreduce([tensor := torch.full((3,), 1.0 + rank)]).wait()
    assert tensor.tolist() == [[4.0] * 3, [2.0] * 3][rank % 2]
    dist.all_reduce(tensor := torch.ones(3))
    assert tensor.tolist() == [3.0] * 3


def test_a_group_is_split():
    run_ranks(3, splits)


def splits_into_halves_of_one_name(rank):
    members = [[0, 1], [2, 3]][rank // 2]
    half = dist.group.WORLD.split_group(members, timeout=LIMIT, group_name="half", group_desc="a half")
    backend = half._get_backend(torch.device("cpu"))
    if rank in (2, 3):
        backend.monitored_barrier(timeout=LIMIT)
    dist.barrier()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass monitoredBarrier"):
            backend.monitored_barrier(timeout=timedelta(seconds=0.3))
    dist.barrier()


def test_halves_of_one_name_have_barriers_of_their_own():
    run_ranks(4, splits_into_halves_of_one_name)


def splits_by_torch(rank):
    dist.group.WORLD.bound_device_id = torch.device("cuda:0")  # for which torch 2.11 asks
    half = dist.split_group(split_ranks=[[0, 2], [1]])
    dist.all_reduce(tensor := torch.full((3,), 1.0 + rank), group=half)
    assert tensor.tolist() == [[4.0] * 3, [2.0] * 3][rank % 2]
    dist.destroy_process_group(half)


def test_torch_splits_a_group():
    run_ranks(3, splits_by_torch)


def cannot(rank):
    with pytest.raises(TypeError, match="does not support shrinking"):
        dist.shrink_group([1])
    with pytest.raises(RuntimeError, match="tutti.*merge"):
        dist.group.WORLD.merge_remote_group(dist.HashStore(), 4, LIMIT, "merged", "")
    with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
        torch.nn.SyncBatchNorm(3)(torch.ones(4, 3))
    dist.all_reduce(tensor := torch.ones(3))
    assert tensor.tolist() == [2.0] * 3


def test_what_groups_cannot_do_is_an_error():
    run_ranks(2, cannot)
