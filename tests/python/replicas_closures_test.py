"""tutti.torch.DistributedDataParallel and optimizers that are given a closure."""

import pytest
import torch

import tutti.torch
from ranks import run_ranks
from replicas_test import WEIGHTS, loss_of, net, weights_of


def has_a_closure(rank, strategy):
    module = net()
    optimizer = torch.optim.LBFGS(module.parameters(), 0.1, max_iter=3)
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy)
    losses = []
    for _ in range(3):

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, rank)
            loss.backward()
            losses.append(loss.item())
            return loss

        with model.no_sync():
            loss_of(model, rank).backward()  # gradients that the closure replaces need not be exchanged
        optimizer.step(closure)
    assert losses[-1] < losses[0]
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_optimizers_with_closures(strategy):
    run_ranks(2, has_a_closure, strategy)


def steps_with_closures(rank, strategy, optimizer):
    """A step with a closure is the step of a loop: where weights travel, they do so while the closure computes."""
    models = []
    for with_closure in (False, True):
        module = net()
        chosen = optimizer(module.parameters())
        model = tutti.torch.DistributedDataParallel(module, chosen, strategy)
        for step in range(5):
            def closure():
                chosen.zero_grad()
                loss = loss_of(model, rank, step)
                loss.backward()
                return loss
            if with_closure:
                assert chosen.step(closure).item() > 0 if step % 2 else chosen.step(closure=closure).item() > 0
            else:
                closure()
                chosen.step()
        models.append(model)
    assert torch.equal(*map(weights_of, models)), strategy
    assert models[0].step == models[1].step == 5


@pytest.mark.parametrize("strategy", [*WEIGHTS, "gradient_allreduce", "qadam:warmup_steps=2"])
def test_closures(strategy):
    kind = tutti.torch.QAdam if strategy.startswith("qadam") else torch.optim.Adam
    run_ranks(2, steps_with_closures, strategy, lambda parameters: kind(parameters, lr=0.01))


class CallsTwice(torch.optim.SGD):
    """An optimizer of the user, which calls its closure after it has changed weights."""

    def step(self, closure=None):
        closure()
        super().step()
        return closure()


def calls_a_closure_twice(rank):
    module = net()
    optimizer = CallsTwice(module.parameters(), 0.01)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized")
    losses = [optimizer.step(lambda: backward(model, rank, optimizer)).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    model.flush()
    model.check_replicas()


def backward(model, rank, optimizer):
    optimizer.zero_grad()
    loss = loss_of(model, rank)
    loss.backward()
    return loss


def test_an_optimizer_that_calls_its_closure_twice():
    run_ranks(2, calls_a_closure_twice)
