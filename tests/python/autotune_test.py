"""Autotuning in Python: training that tunes itself ends with the weights of training that does not, and says so."""

import os

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import run_ranks

STEPS = 60  # more than the tuning takes
SMALL = 1 / 16  # MiB: a bucket for each parameter, so that there is something to tune


def net():
    """A model of two layers, five times as large as the first bucket."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(96, 256), torch.nn.ReLU(), torch.nn.Linear(256, 192))


class Summed(torch.nn.Module):
    """A model whose gradients are integers, however the ranks add them up."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(200, 150) for _ in range(5))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, factor):
        self.calls += 1
        return sum(factor * (i + 1) * weight.sum() for i, weight in enumerate(self.weights))


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def same_on_all_ranks(value):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return all(one == every[0] for one in every)


def trains(rank, autotune, knows_optimizer):
    module = Summed()
    optimizer = torch.optim.SGD(module.parameters(), 0.5, momentum=0.5)
    model = tutti.torch.DistributedDataParallel(
        module, optimizer if knows_optimizer else None, bucket_cap_mb=SMALL, autotune=autotune)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step % 3 == 0:
            with model.no_sync():
                for _ in range(rank + 1):  # one rank more often than the other
                    model(1.0).backward()
        model(float(rank + step % 5)).backward()
        optimizer.step()
    tuning = model.tuning
    assert model.step == STEPS
    assert tuning["state"] == ("done" if autotune else "off")
    if autotune:
        assert len(tuning["trials"]) >= 3 and tuning["backwards"] <= tuning["most_backwards"] <= STEPS
        assert tuning["trials"][0]["bucket_bytes"] == tuning["start"]["bucket_bytes"] == 2**16
        assert tuning["choice"] in [*tuning["trials"], tuning["start"]]
        assert tuning["gain"] == pytest.approx(1 - tuning["choice"]["seconds"] / tuning["start"]["seconds"])
    else:
        assert tuning["trials"] == [] and "choice" not in tuning
    assert same_on_all_ranks(tuning)
    return weights_of(module).tolist()


@pytest.mark.parametrize("knows_optimizer", [True, False])
def test_the_weights_are_those_without_autotuning(knows_optimizer):
    tuned = run_ranks(2, trains, True, knows_optimizer)
    plain = run_ranks(2, trains, False, knows_optimizer)
    assert tuned == plain
    assert all(plain[0])


def test_rank_0_says_once_what_was_chosen(capfd):
    run_ranks(2, trains, True, True)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("tutti: autotuning")]
    assert len(said) == 1 and "bucket_bytes=65536" in said[0] and " ms" in said[0], said


def goes_on(rank):
    def wrap(autotune):
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), 0.05)
        return tutti.torch.DistributedDataParallel(module, optimizer, bucket_cap_mb=SMALL, autotune=autotune), optimizer

    def train(model, optimizer, first, steps):
        for step in range(first, first + steps):
            generator = torch.Generator().manual_seed(2 * step + rank)
            optimizer.zero_grad()
            model(torch.randn(4, 96, generator=generator)).square().mean().backward()
            optimizer.step()

    expected, optimizer = wrap(False)
    train(expected, optimizer, 0, 20)
    first, optimizer = wrap(True)
    train(first, optimizer, 0, 12)
    assert first.tuning["state"] == "tuning"
    state = first.state_dict()
    for autotune in (True, False):
        model, optimizer = wrap(autotune)
        model.load_state_dict(state)
        assert model.step == 12
        train(model, optimizer, 12, 8)
        assert model.step == 20
        assert torch.allclose(weights_of(model), weights_of(expected), atol=1e-6)
    first.load_state_dict(state)  # in the middle of its own tuning
    assert first.step == 12


def test_a_checkpoint_of_the_middle_goes_on_with_and_without():
    run_ranks(2, goes_on)


def reads_the_environment(rank):
    module = Summed()
    states = [tutti.torch.DistributedDataParallel(module, autotune=autotune, bucket_cap_mb=SMALL).tuning["state"]
              for autotune in (None, True, False)]
    assert states == ["tuning", "tuning", "off"], states


def test_the_environment_turns_it_on_where_nothing_is_said(monkeypatch):
    monkeypatch.setenv("TUTTI_AUTOTUNE", "1")
    run_ranks(2, reads_the_environment)


def has_nothing_to_tune(rank, strategy, reason):
    module = net()
    optimizer = (tutti.torch.QAdam(module.parameters()) if strategy == "qadam" else
                 torch.optim.SGD(module.parameters(), 0.1))
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy, autotune=True)
    assert model.tuning["state"] == "nothing to tune"
    assert reason in model.tuning["reason"]


@pytest.mark.parametrize("strategy, reason", [("bytegrad", "codec=uint8_block"), ("qadam", "momentum"),
                                              ("decentralized", "weights"), ("async", "background")])
def test_strategies_that_cannot_be_tuned_say_why(strategy, reason):
    run_ranks(2, has_nothing_to_tune, strategy, reason)


def loses_a_rank(rank):
    model = tutti.torch.DistributedDataParallel(Summed(), bucket_cap_mb=SMALL, autotune=True)
    try:
        for step in range(STEPS):
            if rank == 1 and step == 10:
                os._exit(1)
            model(1.0).backward()
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
        os._exit(0)  # the group has failed, and destroying it would say so
    raise AssertionError("rank 0 went on without rank 1")


def test_a_rank_that_dies_while_it_tunes_is_named():
    run_ranks(2, loses_a_rank, may_die=(0, 1))
