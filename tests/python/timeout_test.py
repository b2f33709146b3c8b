"""How long a rank waits for the others: the timeout that the program names, or that of TUTTI_TIMEOUT, or torch's."""

import datetime
import os
import re
import signal
import subprocess
import sys

import pytest
import ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch


def timeout_of(group):
    return tutti.torch._backend_of(group, "timeout_of").timeout.total_seconds()


def timeouts(rank, own):
    """The timeouts of the default group, and of two groups inside it, of which the second one has its own."""
    halves = [dist.new_group([0, 1]), dist.new_group([0, 1], timeout=datetime.timedelta(seconds=own))]
    return [timeout_of(group) for group in (dist.group.WORLD, *halves)]


@pytest.mark.parametrize("variable, of_default_group, expected", [
    (None, None, [1800, 1800, 77]),
    ("", None, [1800, 1800, 77]),
    ("7.5", None, [7.5, 7.5, 77]),
    ("7.5", 50, [50, 7.5, 77]),
    ("7.5", 1800, [7.5, 7.5, 77]),  # torch's default, which cannot be told from none
    ("1e-9", 50, [50, 0.001, 77]),
    ("inf", None, [100 * 365 * 86400, 100 * 365 * 86400, 77]),
])
def test_a_timeout_that_is_named_counts_then_the_variable_then_torchs_default(
        monkeypatch, variable, of_default_group, expected):
    if variable is None:
        monkeypatch.delenv("TUTTI_TIMEOUT", raising=False)
    else:
        monkeypatch.setenv("TUTTI_TIMEOUT", variable)
    assert ranks.run_ranks(2, timeouts, 77, timeout=of_default_group) == [expected, expected]


def test_a_wrong_variable_is_an_error_of_the_group(monkeypatch):
    monkeypatch.setenv("TUTTI_TIMEOUT", "soon")
    with pytest.raises(AssertionError, match="ValueError: .*TUTTI_TIMEOUT=soon: expected seconds"):
        ranks.run_ranks(1, timeouts, 77, timeout=None)


def split(rank):
    half = dist.group.WORLD.split_group([0, 1], timeout=datetime.timedelta(minutes=30), group_name="half", group_desc="")
    return timeout_of(half)


def test_a_group_that_is_split_off_knows_the_variable(monkeypatch):
    monkeypatch.setenv("TUTTI_TIMEOUT", "9")
    assert ranks.run_ranks(2, split, timeout=None) == [9, 9]


class Stops(Exception):
    """What a rank raises in the middle of a wait or a backward."""


def ends_by_a_signal(call):
    def stop(*_):
        raise Stops

    signal.signal(signal.SIGALRM, stop)
    with pytest.raises(Stops):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        call()


def waits_for_a_peer(rank, days):
    """Waits for a peer that does not come, until a signal ends the wait."""
    timeout = datetime.timedelta(days=days)
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    alone = groups[rank]
    ends_by_a_signal(lambda: alone._get_backend(torch.device("cpu")).monitored_barrier(timeout=timeout))
    dist.all_reduce(torch.ones(1), group=alone, async_op=True)
    barrier = dist.barrier(alone, async_op=True)
    ends_by_a_signal(lambda: barrier.wait(timeout))
    dist.all_reduce(torch.ones(1), group=groups[1 - rank])
    dist.barrier(groups[1 - rank])
    barrier.wait(timeout)


# A clock of nanoseconds in 64 bits counts 292 years.
@pytest.mark.parametrize("days", [60_000, 110_000])
def test_a_timeout_longer_than_the_clock_counts_is_none(days):
    ranks.run_ranks(2, waits_for_a_peer, days)


STEPS = 4


def six_layers():
    return torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))


BUCKET_MB = 2 * 64 * 65 * 4 / 2**20  # two of these layers


class OfTwoDtypes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow, self.wide = torch.nn.Linear(64, 8), torch.nn.Linear(8, 8).double()

    def forward(self, inputs):
        return self.wide(self.narrow(inputs).double())


def steps_counted(rank, make, options):
    model = DistributedDataParallel(make(), bucket_cap_mb=BUCKET_MB, **options)
    exchange = tutti.torch.register(model, "gradient_allreduce")
    counted = []
    for _ in range(STEPS):
        model(torch.ones(2, 64)).sum().backward()
        counted.append(exchange.step)
    return counted


# Where DDP is told to find unused parameters, or a model has two dtypes, DDP has several buckets in its first step.
@pytest.mark.parametrize("make, options", [
    (six_layers, {}), (six_layers, {"find_unused_parameters": True}), (six_layers, {"static_graph": True}),
    (OfTwoDtypes, {}), (OfTwoDtypes, {"find_unused_parameters": True})])
def test_steps_are_counted_once_however_many_buckets_ddp_has_in_the_first_one(make, options):
    counted = list(range(1, STEPS + 1))
    assert ranks.run_ranks(2, steps_counted, make, options) == [counted, counted]


def a_rank_that_stops_training(rank, steps_of_rank_1, stops_before=None, find_unused=False):
    """The error of rank 0, whose peer makes fewer steps and then waits until rank 0 has ended.

    With `stops_before` the peer begins one step more, and leaves that backward before this layer has its gradients.
    """
    torch.manual_seed(1)
    net = six_layers()
    model = DistributedDataParallel(net, bucket_cap_mb=BUCKET_MB, find_unused_parameters=find_unused)
    exchange = tutti.torch.register(model, "gradient_allreduce")
    both = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
    error = None

    def stop(_):
        raise Stops

    try:
        for step in range(STEPS if rank == 0 else steps_of_rank_1 + (stops_before is not None)):
            if rank == 1 and step == steps_of_rank_1:
                net[stops_before].weight.register_hook(stop)
            model(torch.ones(2, 64)).sum().backward()
    except Stops:
        pass
    except dist.DistBackendError as caught:
        error = str(caught)
    dist.barrier(both)
    return error, exchange.step


# DDP has one bucket in the first step. In the second one it makes others, by a call of its own group.
@pytest.mark.parametrize("steps, names", [(0, "0.weight … 5.bias"), (2, "4.weight … 5.bias"), (3, "4.weight … 5.bias")])
def test_a_timeout_of_register_names_the_bucket_its_parameters_and_the_step(monkeypatch, steps, names):
    monkeypatch.setenv("TUTTI_TIMEOUT", "5")
    (error, _), (of_peer, made) = ranks.run_ranks(2, a_rank_that_stops_training, steps, timeout=None)
    assert of_peer is None and made == steps
    assert re.search(r"timeout.*rank 0 waited .* for rank 1 .*; the training waited for bucket 0 \(parameters "
                     rf"{re.escape(names)}\) in training step {steps} \(from 0 on\)", error), error


@pytest.mark.parametrize("find_unused", [False, True])
def test_a_timeout_of_a_later_bucket_names_the_same_step(monkeypatch, find_unused):
    monkeypatch.setenv("TUTTI_TIMEOUT", "5")
    (error, _), _ = ranks.run_ranks(2, a_rank_that_stops_training, 3, 1, find_unused, timeout=None)
    assert re.search(r"waited for bucket 2 \(parameters 0.weight … 1.bias\) in training step 3 \(from 0 on\)", error), error


def test_a_rank_that_meets_by_tutti_waits_as_long_as_the_variable_says(tmp_path):
    """Rank 1 of two on this machine, whose rank 0 was never started."""
    program = """
import time, tutti.torch, torch.distributed as dist
begin = time.monotonic()
try:
    dist.init_process_group("tutti", init_method="tutti://")
except dist.DistBackendError as error:
    assert "rank 1 has not found rank 0" in str(error), error
    assert time.monotonic() - begin < 60, "torch's default is 30 minutes"
else:
    raise AssertionError("nobody could be met")
"""
    variables = {"TUTTI_RANK": "1", "TUTTI_SIZE": "2", "TUTTI_TIMEOUT": "1", "TUTTI_JOB_ID": "alone",
                 "XDG_RUNTIME_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100, env=os.environ | variables)
