"""bench/pytorch/gloo.py: a backend that does nothing is no fast one, but an error."""

import pathlib
import sys

import torch
import torch.distributed as dist

from ranks import run_ranks

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/pytorch"))
import gloo


def ended(measure):
    """The names of the variants that were measured, or the error."""
    gloo.GLOO = dist.new_group(backend="gloo")
    try:
        return list(measure(1))
    except SystemExit as error:
        return str(error)


def small_steps():
    def make():
        torch.manual_seed(0)
        return torch.nn.Linear(5, 3)

    return gloo.steps(make, torch.ones(2, 5), ["gradient_allreduce", "bytegrad"], 1)


def collectives(rank):
    gloo.LARGE_BYTES = 4000
    return [ended(measure) for name, measure in gloo.MEASUREMENTS.items() if "step" not in name]


def collectives_without_effect(rank):
    for name in "all_reduce", "broadcast":
        def only_of_gloo(*arguments, call=getattr(dist, name), group=None, **named):
            return group and call(*arguments, group=group, **named)
        setattr(dist, name, only_of_gloo)
    return collectives(rank)


def steps(rank):
    return ended(small_steps())


def steps_without_exchange(rank):
    gloo.tutti.torch.register = lambda model, strategy: model.register_comm_hook(None, gloo.leaves_gradients)
    return steps(rank)


def steps_with_other_gradients(rank):
    def of_rank_0(_state, bucket):
        dist.broadcast(bucket.buffer(), 0)
        return gloo.leaves_gradients(_state, bucket)

    gloo.tutti.torch.register = lambda model, strategy: model.register_comm_hook(None, of_rank_0)
    return steps(rank)


def test_collectives_that_are_right_are_measured():
    for measured in run_ranks(2, collectives):
        assert measured == [["gloo", "tutti", "tutti, arena"], ["gloo", "tutti"], ["gloo", "tutti"]]


def test_collectives_without_effect_are_errors():
    for measured in run_ranks(2, collectives_without_effect):
        assert measured == [f"tutti: {wrong} elements are wrong, over all ranks" for wrong in (1000, 4, 2)]


def test_steps_after_which_replicas_are_equal_are_measured():
    for measured in run_ranks(2, steps):
        assert measured[-1] == "tutti, wrapper, gradient_allreduce"


def test_steps_after_which_replicas_differ_are_errors():
    assert run_ranks(2, steps_without_exchange) == [
        "tutti, gradient_allreduce: ranks have other weights after the same steps"] * 2


def test_steps_with_other_sums_than_gloos_are_errors():
    assert run_ranks(2, steps_with_other_gradients) == ["tutti, gradient_allreduce: weights are other ones than with gloo"] * 2
