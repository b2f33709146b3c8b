"""Parameters and buffers that a module names as each rank's own, which DistributedDataParallel leaves alone."""

import pytest
import torch

import tutti.torch
from ranks import run_ranks
from replicas_test import of_all_ranks, wrap


class WithExpert(torch.nn.Module):
    """A layer that all ranks share, beside an expert and a buffer that each rank has for itself."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.shared = torch.nn.Linear(6, 3)
        self.expert = torch.nn.Linear(6, 3, bias=False)
        torch.nn.init.constant_(self.expert.weight, rank)
        self.register_buffer("seen", torch.tensor([float(rank)]))

    def forward(self, inputs):
        return self.shared(inputs) + self.expert(inputs)


def step(model, optimizer, rank):
    optimizer.zero_grad()
    model(torch.full((4, 6), 1.0 + rank)).sum().backward()
    optimizer.step()


def keeps_an_expert(rank, attribute, strategy):
    module = WithExpert(rank)
    setattr(module, attribute, ["expert.weight", "seen"])
    model, optimizer = wrap(strategy, module)
    assert module.expert.weight.eq(rank).all() and module.seen.item() == rank
    assert torch.equal(*of_all_ranks(module.shared.weight.detach()))
    step(model, optimizer, rank)
    assert module.expert.weight.grad.eq(4.0 * (1 + rank)).all(), "the gradient is that of this rank"
    assert torch.allclose(module.expert.weight, torch.tensor(rank - 0.4 * (1 + rank)))
    module.seen = torch.tensor([5.0 + rank])
    module.expert.weight = torch.nn.Parameter(torch.full((3, 6), 7.0 + rank))
    step(model, optimizer, rank)
    model.flush()
    model.broadcast()
    model.check_replicas()
    assert module.expert.weight.eq(7.0 + rank).all() and module.seen.item() == 5 + rank
    assert torch.equal(*of_all_ranks(module.shared.weight.detach()))
    module.shared.bias = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ValueError, match="shared.bias was replaced"):
        model(torch.ones(1, 6))


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "bytegrad", "decentralized"])
@pytest.mark.parametrize("attribute", ["_ddp_params_and_buffers_to_ignore", "_bagua_params_and_buffers_to_ignore"])
def test_what_a_module_names_stays_that_of_the_rank(attribute, strategy):
    run_ranks(2, keeps_an_expert, attribute, strategy)


def names_a_parameter_as_ddp_does(rank, name):
    module = WithExpert(rank)
    module.scale = torch.nn.Parameter(torch.tensor([float(rank)]))
    module._ddp_params_and_buffers_to_ignore = [name]
    wrap("gradient_allreduce", module)
    assert module.scale.item() == rank


@pytest.mark.parametrize("name", ["scale", ".scale"])
def test_a_parameter_of_the_outermost_module_has_two_names(name):
    run_ranks(2, names_a_parameter_as_ddp_does, name)


def names_what_it_does_not_have(rank):
    module = WithExpert(rank)
    module._ddp_params_and_buffers_to_ignore = ["expert.weight", "expert", "head.weight"]
    with pytest.warns(UserWarning, match=r"2 names of .* \(expert, head.weight\) are none of a parameter or buffer"):
        model, _ = wrap("gradient_allreduce", module)
    assert module.expert.weight.eq(rank).all()
    model.check_replicas()


def test_names_that_the_module_does_not_have_are_passed_over_with_a_warning():
    run_ranks(2, names_what_it_does_not_have)


def has_an_expert_of_its_own_size(rank):
    module = WithExpert(rank)
    module.expert = torch.nn.Sequential(torch.nn.Linear(6, 2 + rank), torch.nn.Linear(2 + rank, 3))
    names = [f"expert.{name}" for name, _ in module.expert.named_parameters()]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    model, optimizer = wrap("gradient_allreduce", module)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(1, 6)).sum()).backward()
    with pytest.raises(ValueError, match="tutti.torch.GradScaler"):  # an overflow in the expert is this rank's alone
        scaler.step(optimizer)
    step(model, optimizer, rank)
    model.check_replicas()


def test_ignored_parameters_may_differ_in_shape():
    run_ranks(2, has_an_expert_of_its_own_size)


def resumes_an_optimizer(rank):
    module = WithExpert(rank)
    module._ddp_params_and_buffers_to_ignore = ["expert.weight"]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "gradient_allreduce")
    step(model, optimizer, rank)
    own = optimizer.state[module.expert.weight]["momentum_buffer"].clone()
    optimizer.state[module.shared.weight]["momentum_buffer"].fill_(rank)
    model.broadcast_optimizer(optimizer)
    assert optimizer.state[module.shared.weight]["momentum_buffer"].eq(0).all(), "that of rank 0"
    assert torch.equal(optimizer.state[module.expert.weight]["momentum_buffer"], own)


def test_the_optimizer_keeps_what_it_knows_of_ignored_parameters():
    run_ranks(2, resumes_an_optimizer)


def resumes_the_optimizer_of_rank_0(rank):
    """Rank 0 has loaded the state of its optimizer, and the optimizer of rank 1 is new."""
    module = WithExpert(rank)
    module._ddp_params_and_buffers_to_ignore = ["expert.weight"]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    if rank == 0:
        for parameter in module.parameters():
            optimizer.state[parameter] = {"momentum_buffer": torch.ones_like(parameter)}
    model = tutti.torch.DistributedDataParallel(module, optimizer, "gradient_allreduce")
    model.broadcast_optimizer(optimizer)
    assert optimizer.state[module.shared.weight]["momentum_buffer"].eq(1).all()
    assert (module.expert.weight in optimizer.state) == (rank == 0)
    step(model, optimizer, rank)


def test_a_new_optimizer_learns_nothing_of_ignored_parameters():
    run_ranks(2, resumes_the_optimizer_of_rank_0)


def ignores_one_name_of_two(rank):
    module = WithExpert(rank)
    module.head = torch.nn.Linear(6, 3)
    module.head.weight = module.expert.weight
    module._ddp_params_and_buffers_to_ignore = ["expert.weight"]
    model, optimizer = wrap("gradient_allreduce", module)
    assert module.expert.weight.eq(0).all(), "the weight of rank 0, as in torch's DDP"
    model.check_replicas()


def test_a_tensor_with_a_name_that_is_not_ignored_is_exchanged():
    run_ranks(2, ignores_one_name_of_two)
