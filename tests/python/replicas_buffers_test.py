"""Buffers of tutti.torch.DistributedDataParallel, which ranks keep equal."""

import weakref

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import run_ranks
from replicas_test import wrap


def buffers_become(rank, mode):
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(4, momentum=1.0), torch.nn.Linear(4, 1))
    model, optimizer = wrap("decentralized", module, buffers=mode)
    inputs = torch.tensor([[0.0] * 4, [2.0 + 4 * rank] * 4])  # mean 1 on rank 0, 3 on rank 1
    for _ in range(2):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    mean = {"broadcast": 1.0, "average": 2.0, "leave": 1.0 + 2 * rank}[mode]
    assert torch.equal(module[0].running_mean, torch.full((4,), mean))


@pytest.mark.parametrize("mode", ["broadcast", "average", "leave"])
def test_buffers(mode):
    run_ranks(2, buffers_become, mode)


class Mean(torch.nn.Module):
    """A module that assigns its buffer anew in each forward, as averages of one's own are often written."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("later", None)

    def forward(self, inputs):
        self.mean = 0.5 * self.mean + 0.5 * inputs.mean(0)
        return self.linear(inputs)


def replaces_its_own_buffer(rank):
    module = Mean()
    model, _ = wrap("bytegrad", module, buffers="leave")
    before = weakref.ref(module.mean)
    module.mean = torch.ones(4)
    assert before() is None
    model.flush()


def test_a_buffer_of_each_rank_is_the_modules_alone():
    run_ranks(2, replaces_its_own_buffer)


def takes_a_step(model, optimizer, rank):
    optimizer.zero_grad()
    model(torch.full((2, 4), 2.0 + 4 * rank)).sum().backward()
    optimizer.step()


def assigns_buffers(rank, strategy, mode):
    module = Mean()
    model, optimizer = wrap(strategy, module, buffers=mode)
    for mean in {"broadcast": (1.0, 1.5), "average": (2.0, 3.0), "leave": (1.0 + 2 * rank, 1.5 + 3 * rank)}[mode]:
        takes_a_step(model, optimizer, rank)
        assert torch.equal(module.mean, torch.full((4,), mean)), (module.mean, mean)
    module.later = torch.full((2, 3), 2.0 * rank)  # a buffer that was None,
    module.append = torch.nn.BatchNorm1d(4, affine=False)  # and a module that has buffers and no parameters
    module.append.running_mean = torch.full((4,), 2.0 * rank)
    takes_a_step(model, optimizer, rank)
    expected = {"broadcast": 0.0, "average": 1.0, "leave": 2.0 * rank}[mode]
    assert module.later.eq(expected).all() and module.append.running_mean.eq(expected).all()
    module.later = torch.full((5,), 2.0 * rank)  # another shape
    model.flush()
    assert torch.equal(module.later, torch.full((5,), expected))
    module.later = torch.full((5,), 1.0 + rank)
    if mode != "leave":
        with pytest.raises(RuntimeError, match="later"):
            model.check_replicas()
    model.broadcast()
    assert module.later.eq(1 + rank if mode == "leave" else 1).all()
    model.check_replicas()
    module.later = None
    model.flush()


@pytest.mark.parametrize("mode", ["broadcast", "average", "leave"])
@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_buffers_that_the_module_assigns_anew(strategy, mode):
    run_ranks(2, assigns_buffers, strategy, mode)


def has_buffers_of_its_own(rank, change):
    module = Mean()
    model, optimizer = wrap("gradient_allreduce", module)
    takes_a_step(model, optimizer, rank)
    with pytest.raises((ValueError, dist.DistBackendError)) as raised:
        change(module, rank)
        takes_a_step(model, optimizer, rank)
        takes_a_step(model, optimizer, rank)
    return f"{type(raised.value).__name__}: {raised.value}"


def fills_with_another_shape(module, rank):
    module.later = torch.ones(2 + rank)


def fills_on_one_rank(module, rank):
    if rank == 1:
        module.later = torch.ones(2)


def test_buffers_that_differ_between_ranks():
    for error in run_ranks(2, has_buffers_of_its_own, fills_with_another_shape):
        assert error.startswith("ValueError") and "buffer later=Float 3" in error and "rank 1" in error, error
    for error in run_ranks(2, has_buffers_of_its_own, fills_on_one_rank):
        assert "rank 1" in error or "rank 0" in error, error
    assert any("buffer later of rank 1" in error for error in run_ranks(2, has_buffers_of_its_own, fills_on_one_rank))


def has_a_buffer_that_does_not_fit(rank, buffer, reason):
    module = torch.nn.Linear(3, 2)
    module.register_buffer("odd", buffer())
    with pytest.raises(NotImplementedError, match=f"buffer odd.*{reason}"):
        wrap("gradient_allreduce", module)


@pytest.mark.parametrize("buffer, reason", [
    (lambda: torch.eye(3).to_sparse(), "Sparse"), (lambda: torch.ones(3, device="meta"), "meta"),
    (lambda: torch.ones(1).expand(3), "share memory")
])
def test_buffers_that_cannot_be_exchanged(buffer, reason):
    run_ranks(2, has_a_buffer_that_does_not_fit, buffer, reason)


def steps_without_telling(rank, mode):
    """No optimizer is known: buffers are equal from the next forward on, and in a step that is told of."""
    module = Mean()
    model = tutti.torch.DistributedDataParallel(module, buffers=mode)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    inputs = torch.full((2, 4), 2.0 + 4 * rank)
    means = {"broadcast": (1.0, 1.5), "average": (2.0, 3.0), "leave": (1.0 + 2 * rank, 1.5 + 3 * rank)}[mode]
    before = 0.0
    for mean in means:
        with model.no_sync():
            model(inputs)
        module.mean = torch.full((4,), before)  # that forward did not count
        takes_a_step(model, optimizer, rank)
        own = 0.5 * before + 1.0 + 2 * rank
        assert module.mean.eq(own).all(), (module.mean, own)
        with torch.no_grad():
            model(torch.zeros(2, 4))  # halves the mean, which is equal on all ranks now
        assert module.mean.eq(mean / 2).all(), (module.mean, mean)
        if rank == 0:
            model(torch.zeros(2, 4))  # on one rank alone: no backward has exchanged since
        module.mean = torch.full((4,), mean)
        before = mean
    with model.one_step():
        takes_a_step(model, optimizer, rank)
    after = module.mean.clone()
    if rank == 0:
        model(inputs)
    module.mean = after
    if mode != "leave":
        model.check_replicas()


@pytest.mark.parametrize("mode", ["broadcast", "average", "leave"])
def test_buffers_of_a_model_that_knows_no_optimizer(mode):
    run_ranks(2, steps_without_telling, mode)
