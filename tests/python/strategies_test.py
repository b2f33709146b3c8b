"""Stock DDP that exchanges gradients by an algorithm of Tutti."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch
from ranks import run_ranks
from training_test import Net, expect_equal_replicas, train


def weights_of(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def trains_like_plain_ddp(rank, strategy, tolerance, options):
    plain = DistributedDataParallel(Net(), **options)
    train(plain, rank, use=True)
    model = DistributedDataParallel(Net(), **options)
    exchange = tutti.torch.register(model, strategy)
    assert exchange.strategy.startswith(strategy.partition(":")[0])
    train(model, rank, use=True)
    assert exchange.step == 6
    expect_equal_replicas(model.module)
    for a, b in zip(plain.module.parameters(), model.module.parameters()):
        assert torch.allclose(a, b, atol=tolerance), (a - b).abs().max()


# Buckets of 1 KB: there are several, which DDP cuts anew after the first step.
@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}], ids=str)
@pytest.mark.parametrize("strategy, tolerance", [("gradient_allreduce", 1e-6), ("bytegrad", 0.01),
                                                 ("bytegrad:error_feedback=true,codec=uint4_block", 0.05)])
def test_training(strategy, tolerance, options):
    run_ranks(2, trains_like_plain_ddp, strategy, tolerance, options)


class Rotation(torch.nn.Module):
    """Complex parameters of which one has an odd number of elements."""

    def __init__(self, wide):
        super().__init__()
        self.odd = torch.nn.Parameter(torch.linspace(1, 2, 7).to(torch.complex64))
        self.wide = torch.nn.Parameter(torch.linspace(2, 1, 8).to(wide))
        self.real = torch.nn.Parameter(torch.linspace(0, 1, 5))

    def forward(self, angle):
        turn = torch.polar(torch.ones(()), angle)
        target = torch.tensor(1j)
        return sum((p * turn - target).abs().square().sum() for p in (self.odd, self.wide, self.real))


def trains_complex_parameters_like_plain_ddp(rank, strategy, wide, tolerance, options):
    plain, model = (DistributedDataParallel(Rotation(wide), **options) for _ in range(2))
    tutti.torch.register(model, strategy)
    for step in range(4):  # DDP cuts its buckets anew after the first step
        for module in (plain, model):
            module.zero_grad()
            module(torch.tensor(0.3 * rank + step)).backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
    for ours, theirs in zip(weights_of(model), weights_of(plain)):
        assert torch.allclose(ours, theirs, atol=tolerance), (ours - theirs).abs().max()
        every = [torch.empty_like(ours) for _ in range(2)]
        dist.all_gather(every, ours)
        assert torch.equal(*every)


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
@pytest.mark.parametrize("strategy, wide, tolerance", [("gradient_allreduce", torch.complex128, 1e-6),
                                                       ("bytegrad", torch.complex64, 0.05)])
def test_complex_parameters(strategy, wide, tolerance, options):
    run_ranks(2, trains_complex_parameters_like_plain_ddp, strategy, wide, tolerance, options)


def goes_on_from_a_state(rank, strategy):
    def make():
        model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
        return model, tutti.torch.register(model, strategy)

    model, exchange = make()
    train(model, rank, use=True, steps=3)
    weights = copy.deepcopy(model.module.state_dict())
    state = exchange.state_dict()
    train(model, rank, use=True, steps=3)
    again, other = make()
    train(again, rank, use=True, steps=2)  # DDP cuts its buckets in these steps
    again.module.load_state_dict(weights)
    other.load_state_dict(state)
    assert other.step == 3
    train(again, rank, use=True, steps=3)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(model.module), weights_of(again.module)))


def test_a_state_goes_on_bit_for_bit():
    run_ranks(2, goes_on_from_a_state, "bytegrad:error_feedback=true")


def loads_a_wrong_file(rank):
    exchange = tutti.torch.register(DistributedDataParallel(Net()), "bytegrad:error_feedback=true")
    good = exchange.state_dict()
    for wrong in ({"model": {}, "epoch": 3}, {"state": {"exp_avg": 1}}, {"state": torch.ones(3)}, None, 7, [], [good, {}]):
        with pytest.raises(ValueError, match="rank 1"):
            exchange.load_state_dict(wrong if rank == 1 else good)
    with pytest.raises(ValueError, match="a dict with the keys 'model', 'epoch'; state_dict is what"):
        exchange.load_state_dict({"model": {}, "epoch": 3})
    exchange.load_state_dict(good)


def test_a_wrong_file_on_one_rank_is_an_error_of_all():
    run_ranks(2, loads_a_wrong_file)


def mistakes(rank):
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    for strategy, text in (("bytegrd", "bytegrad"), ("decentralized", "weights"), ("bytegrad:codec=none_such", "codec")):
        with pytest.raises(ValueError, match=text):
            tutti.torch.register(model, strategy)
    with pytest.raises(ValueError, match="runs on gloo"):
        tutti.torch.register(
            DistributedDataParallel(torch.nn.Linear(3, 2), process_group=dist.new_group(backend="gloo")), "bytegrad")
    model._use_python_reducer = True  # as torch._dynamo.config.optimize_ddp = "python_reducer" does
    with pytest.raises(ValueError, match="python_reducer"):
        tutti.torch.register(model, "bytegrad")
    model._use_python_reducer = False
    with pytest.raises(TypeError, match="set_loss_scale"):
        tutti.torch.GradScaler(model)
    with pytest.raises(ValueError, match="maximize"):
        tutti.torch.QAdam([{"params": list(model.parameters()), "maximize": True}])
    exchange = tutti.torch.register(model, "bytegrad")
    with pytest.raises(TypeError, match="set_loss_scale: scale is a str; give a number, such as scaler.get_scale()"):
        exchange.set_loss_scale("3")
    with pytest.raises(ValueError, match="has a communication hook already"):
        tutti.torch.register(model, "bytegrad")
    model(torch.ones(1, 3)).sum().backward()
    assert model.module.weight.grad is not None


class Tied(torch.nn.Module):
    """An embedding with sparse gradients, whose weight is that of a layer, too, which has it first or second."""

    def __init__(self, layer_is_first):
        super().__init__()
        layer, embedding = torch.nn.Linear(3, 5, bias=False), torch.nn.Embedding(5, 3, sparse=True)
        layer.weight = embedding.weight
        self.layers = torch.nn.ModuleList([layer, embedding] if layer_is_first else [embedding, layer])
        self.order = [-1, 0] if layer_is_first else [0, 1]

    def forward(self, inputs):
        for index in self.order:
            inputs = self.layers[index](inputs)
        return inputs


def has_sparse_gradients(rank):
    sparse = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.EmbeddingBag(5, 3, sparse=True))
    for module, name in ((sparse, "1.weight"), (Tied(layer_is_first=False), "layers.0.weight")):
        with pytest.raises(ValueError, match=f"parameter {name} has sparse gradients.*sparse=False, or leave register out"):
            tutti.torch.register(DistributedDataParallel(module), "gradient_allreduce")
    model = DistributedDataParallel(Tied(layer_is_first=True))  # whose gradients DDP takes for dense, and they are
    tutti.torch.register(model, "gradient_allreduce")
    model(torch.tensor([rank])).sum().backward()
    sparse[1].requires_grad_(False)
    tutti.torch.register(DistributedDataParallel(sparse), "gradient_allreduce")


def test_sparse_gradients_are_refused():
    run_ranks(2, has_sparse_gradients)


def unfreezes(rank):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    module[0].requires_grad_(False)
    model = DistributedDataParallel(module)
    tutti.torch.register(model, "gradient_allreduce")
    model(torch.full((1, 3), 1.0 + rank)).sum().backward()
    module[0].requires_grad_(True)
    with pytest.raises(ValueError, match="parameter 0.weight was unfrozen"):
        model(torch.full((1, 3), 1.0 + rank)).sum().backward()


def test_a_parameter_that_is_unfrozen_later():
    run_ranks(2, unfreezes)


def unfreezes_what_is_ignored(rank):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    module[0].requires_grad_(False)
    module._ddp_params_and_buffers_to_ignore = ["0.weight", "0.bias"]
    model = DistributedDataParallel(module)
    tutti.torch.register(model, "gradient_allreduce")
    module[0].requires_grad_(True)
    model(torch.full((1, 3), 1.0 + rank)).sum().backward()
    assert module[0].weight.grad is not None


def test_an_ignored_parameter_may_be_unfrozen():
    run_ranks(2, unfreezes_what_is_ignored)


def test_mistakes():
    run_ranks(2, mistakes)
