"""tutti.torch.DistributedDataParallel: steps with a backward inside, or between a forward and its backward."""

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


class FailsOnce(torch.optim.SGD):
    """An optimizer of the user, whose first step raises inside or after that of the base class."""

    fails_inside = fails_after = False

    def step(self, closure=None):
        if self.fails_inside:
            try:
                super().step(lambda: 1 / 0)
            except ZeroDivisionError:
                pass
        loss = super().step(closure)
        if self.fails_after:
            raise RuntimeError("after the step")
        return loss


def steps_in_steps(rank, closures):
    torch.optim.SGD([torch.zeros(1)])  # from here on torch runs hooks around the step of the base class, too
    models = []
    for kind in (torch.optim.SGD, FailsOnce):
        module = net()
        optimizer = kind(module.parameters(), 0.1)
        model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized:peer_selection_mode=shift_one")
        models.append(model)
        for step in range(6):
            if kind is FailsOnce and step == 2:
                optimizer.fails_inside = True
            if closures:
                optimizer.step(lambda: backward(model, rank, optimizer, step))
            else:
                backward(model, rank, optimizer, step)
                optimizer.step()
            optimizer.fails_inside = False
        assert model.step == 6
    # A class that is not torch's may call its closure late: weights are exchanged before the closure, not after it.
    assert closures or torch.equal(*map(weights_of, models))
    optimizer.fails_after = True
    backward(model, rank, optimizer)
    with pytest.raises(RuntimeError, match="after the step"):
        optimizer.step()
    optimizer.fails_after = False
    model.broadcast()
    backward(model, rank, optimizer)
    optimizer.step()
    assert model.step == 7
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("closures", [False, True])
def test_an_optimizer_whose_step_calls_that_of_its_base_class(closures):
    run_ranks(2, steps_in_steps, closures)


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


def backward(model, rank, optimizer, step=0):
    optimizer.zero_grad()
    loss = loss_of(model, rank, step)
    loss.backward()
    return loss


def test_an_optimizer_that_calls_its_closure_twice():
    run_ranks(2, calls_a_closure_twice)


def goes_back_after_a_step(rank, strategy):
    module = net()
    first, last = (torch.optim.SGD(module[i].parameters(), 0.1) for i in (0, 2))
    model = tutti.torch.DistributedDataParallel(module, [first, last], strategy)

    def trains_one_after_the_other():
        model.zero_grad()
        early = loss_of(model, rank, 1)
        loss_of(model, rank, 2).backward()
        first.step()  # changes no weight that the backward below needs, but the exchange changes all
        early.backward()
        last.step()

    for change in (trains_one_after_the_other, model.flush, model.broadcast):
        early = loss_of(model, rank)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            change()
            early.backward()
    with model.one_step():
        trains_one_after_the_other()


@pytest.mark.parametrize("strategy", [*WEIGHTS, "async:sync_interval_ms=1"])
def test_a_backward_through_weights_of_before_an_exchange_is_an_error(strategy):
    run_ranks(2, goes_back_after_a_step, strategy)
