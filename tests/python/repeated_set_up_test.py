"""Groups that are made again after their set-up has failed, by ranks that have tried differently often."""

import datetime
import functools

import pytest
import torch
import torch.distributed as dist

from lifetime_test import gives_up
from ranks import run_ranks


def make_a_group_again(rank, late):
    """Rank `late` comes when the other rank has given up twice: it hears so each time, and meets the other rank then."""
    new_group = functools.partial(dist.new_group, [0, 1], use_local_synchronization=True)
    missed = 2
    if rank != late:
        for _ in range(missed):
            gives_up(new_group)
    dist.barrier()
    group = None
    while group is None:
        try:
            group = new_group()
        except dist.DistBackendError as error:
            assert rank == late and f"rank {1 - late} has given up: interrupted" in str(error)
            missed -= 1
    assert missed >= 0 or rank != late
    dist.all_reduce(tensor := torch.ones(3), group=group)
    assert tensor.tolist() == [2] * 3
    group._get_backend(torch.device("cpu")).monitored_barrier(timeout=datetime.timedelta(seconds=30))


@pytest.mark.parametrize("late", [0, 1])
def test_a_group_that_failed_can_be_made_again(late):
    run_ranks(2, make_a_group_again, late)


def live_again(rank, path):
    """A job begins anew in its store, where a set-up had failed on one rank."""
    dist.destroy_process_group()
    store = dist.FileStore(path, 2)
    init = functools.partial(dist.init_process_group, "tutti", store=store, rank=rank, world_size=2)
    for _ in range(3):
        init()
        if rank == 0:
            gives_up(lambda: dist.new_group([0, 1]))
        dist.barrier()
        dist.destroy_process_group()
    init()
    group = dist.new_group([0, 1])
    group._get_backend(torch.device("cpu")).monitored_barrier(timeout=datetime.timedelta(seconds=30))
    dist.all_reduce(tensor := torch.ones(3), group=group)
    assert tensor.tolist() == [2] * 3
    dist.destroy_process_group()


def test_a_job_begins_anew_after_a_failed_set_up(tmp_path):
    run_ranks(2, live_again, str(tmp_path / "store"))
