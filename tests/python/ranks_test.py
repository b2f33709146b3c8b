"""The harness of these tests itself: how a rank ends counts, and not its result alone."""

import os
import threading

import pytest

from ranks import run_ranks


def reports_and_crashes(rank):
    if rank == 1:  # the interpreter waits for this thread after the result was sent
        threading.Thread(target=lambda: (threading.main_thread().join(), os._exit(3))).start()
    return rank


def test_a_rank_that_crashes_after_its_result():
    with pytest.raises(AssertionError, match="rank 1 has reported its result, and ended with 3"):
        run_ranks(2, reports_and_crashes)
    assert run_ranks(2, reports_and_crashes, may_die=[1])[0] == 0


def reports_and_hangs(rank):
    if rank == 1:
        threading.Thread(target=threading.Event().wait).start()
    return rank


def test_a_rank_that_hangs_after_its_result():
    with pytest.raises(AssertionError, match="did not end"):
        run_ranks(2, reports_and_hangs, limit=2)
