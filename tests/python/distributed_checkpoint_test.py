"""Checkpoints of tutti.torch.DistributedDataParallel by torch.distributed.checkpoint."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states

import tutti.torch
from ranks import run_ranks
from replicas_test import net, train, weights_of

GRADIENTS = ["gradient_allreduce", "bytegrad:error_feedback=true"]
WEIGHTS = ["decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"]


def wrap(strategy, optimizer):
    module = net()
    optimizer = optimizer(module.parameters())
    return tutti.torch.DistributedDataParallel(module, optimizer, strategy), optimizer


def adam(parameters):
    return torch.optim.AdamW(parameters, 0.01)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def qadam(parameters):
    parameters = list(parameters)
    return tutti.torch.QAdam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}], 0.01)


def qadam_of_a_frozen_layer(parameters):
    parameters = list(parameters)
    for parameter in parameters[:2]:
        parameter.requires_grad_(False)
    return qadam(parameters)


def saves(rank, strategy, optimizer, folder, options):
    model, optimizer = wrap(strategy, optimizer)
    for step in range(4):
        # Between any two steps, whether there are gradients or not, a look at the state changes nothing.
        states.get_state_dict(model, optimizer, options=options)
        assert model.step == step
        train(model, optimizer, rank, 1, first=step)
    optimizer.zero_grad()
    model.flush()  # the weights of one rank are saved for all
    weights = weights_of(model)
    of_model, of_optimizer = states.get_state_dict(model, optimizer, options=options)
    assert torch.equal(weights, weights_of(model)) and model.step == 4
    assert not any(group["lr"] == 0 for group in optimizer.param_groups)
    dcp.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)
    train(model, optimizer, rank, 3, first=4)
    return weights_of(model).tolist()


def loads(rank, strategy, optimizer, folder, options):
    model, optimizer = wrap(strategy, optimizer)
    of_model, of_optimizer = states.get_state_dict(model, optimizer, options=options)
    dcp.load({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)
    states.set_state_dict(model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer, options=options)
    assert model.step == 4
    train(model, optimizer, rank, 3, first=4)
    return weights_of(model).tolist()


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("strategy, optimizer", [
    *((strategy, optimizer) for strategy in GRADIENTS + WEIGHTS for optimizer in (sgd, adam)),
    *(("qadam:warmup_steps=2", optimizer) for optimizer in (qadam, qadam_of_a_frozen_layer)),
])
def test_a_training_goes_on(tmp_path, strategy, optimizer, flat):
    options = states.StateDictOptions(flatten_optimizer_state_dict=flat)
    trained = run_ranks(2, saves, strategy, optimizer, str(tmp_path), options)
    resumed = run_ranks(2, loads, strategy, optimizer, str(tmp_path), options)
    # Where weights are exchanged, each rank has momenta of its own, of which those of one rank are saved.
    assert trained == resumed or (strategy in WEIGHTS and optimizer is adam)


def looks_alone(rank, strategy):
    model, optimizer = wrap(strategy, sgd)  # Adam would count this step
    if rank == 0:
        states.get_optimizer_state_dict(model, optimizer)
    train(model, optimizer, rank, 2)
    model.flush()
    model.check_replicas()


class Wraps(torch.optim.SGD):
    """An optimizer that lets another one make the steps."""

    inner = None

    def step(self, closure=None):
        self.inner.step(closure)


def looks_through_a_wrapper(rank):
    model, optimizer = wrap(WEIGHTS[0], sgd)
    wrapper = Wraps(model.module.parameters(), 0.1)
    wrapper.inner = optimizer
    if rank == 0:
        states.get_optimizer_state_dict(model, wrapper)
    assert model.step == 0 and not model.weights_were_written()
    with torch.no_grad():
        model.module[0].weight.add_(1)
    states.get_optimizer_state_dict(model, wrapper)
    assert model.weights_were_written(), "a look makes no written weights right"


def test_a_rank_may_look_at_the_state_of_an_optimizer_around_another():
    run_ranks(2, looks_through_a_wrapper)


@pytest.mark.parametrize("strategy", GRADIENTS + WEIGHTS)
def test_a_rank_may_look_at_the_state_of_an_optimizer_alone(strategy):
    run_ranks(2, looks_alone, strategy)


def loads_in_another_world(rank, strategy, folder):
    model, optimizer = wrap(strategy, adam)
    of_model, of_optimizer = states.get_state_dict(model, optimizer)
    of_model = {name: value for name, value in of_model.items() if not name.endswith("_extra_state")}
    dcp.load({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)
    states.set_state_dict(model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer,
                          options=states.StateDictOptions(strict=False))
    train(model, optimizer, rank, 2)
    model.flush()
    model.check_replicas()


def test_the_weights_and_the_optimizer_in_a_world_of_another_size(tmp_path):
    run_ranks(2, saves, "bytegrad", adam, str(tmp_path), None)
    run_ranks(3, loads_in_another_world, "bytegrad", str(tmp_path))
