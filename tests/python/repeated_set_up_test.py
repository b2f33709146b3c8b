"""Groups that are made again after their set-up has failed, by ranks that have tried differently often."""

import datetime
import functools
import pathlib
import threading
import time

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


def live_again_after_a_deadline(rank, path):
    """Rank 0 has given up a set-up, to which rank 1 did not come, and begins the next one later than rank 1."""
    dist.destroy_process_group()
    store = dist.FileStore(path, 2)
    gave_up = pathlib.Path(path + ".gave_up")
    init = functools.partial(dist.init_process_group, "tutti", store=store, rank=rank, world_size=2)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="missing ranks: 1"):
            init(timeout=datetime.timedelta(seconds=1))
        gave_up.touch()
        time.sleep(2)
    else:
        while not gave_up.exists():
            time.sleep(0.01)
        with pytest.raises(dist.DistBackendError, match="rank 0 has not begun anew to make the group since an attempt "
                                                        "failed: exchange '.*' of 2 ranks: missing ranks: 1"):
            init(timeout=datetime.timedelta(milliseconds=300))
    init(timeout=datetime.timedelta(seconds=60))
    dist.all_reduce(tensor := torch.ones(3))
    assert tensor.tolist() == [2] * 3
    dist.destroy_process_group()


def test_what_a_rank_that_gave_up_has_left_ends_no_later_set_up(tmp_path):
    run_ranks(2, live_again_after_a_deadline, str(tmp_path / "store"))


def shrink(rank, path):
    """A world of three ends, and two of its ranks make one of their own in the same store."""
    dist.destroy_process_group()
    store = dist.FileStore(path, 3)
    second = datetime.timedelta(seconds=1)
    for size in 3, 2:
        if rank == 2 and size == 2:
            return
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        if size == 3:
            backend.monitored_barrier(timeout=datetime.timedelta(seconds=30))
        elif rank == 1:  # what rank 0 of the world of three has left in the store is no sign of rank 0 of this one
            begin = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="Rank 0 failed to pass monitoredBarrier in 1000 ms"):
                backend.monitored_barrier(timeout=second)
            assert time.monotonic() - begin < 1.9
        dist.all_reduce(tensor := torch.ones(3))
        assert tensor.tolist() == [size] * 3
        dist.destroy_process_group()


def test_a_world_of_fewer_ranks_meets_nothing_of_the_last_one(tmp_path):
    run_ranks(3, shrink, str(tmp_path / "store"))


def is_freed_by_abort(rank, who):
    """A rank waits for another one to make a group with it, until one of the two aborts the default group."""
    abort = dist.group.WORLD._get_backend(torch.device("cpu")).abort
    dist.barrier()
    if rank == who:
        threading.Timer(1, abort).start()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match=f"rank {who} has aborted the process group"):
            dist.new_group([0, 1])
    else:
        time.sleep(3)  # not needed by rank 0, which has ended by then


@pytest.mark.parametrize("who", [0, 1])
def test_abort_ends_the_making_of_a_group(who):
    run_ranks(2, is_freed_by_abort, who)
