"""Batch normalization over the batches of all ranks."""

import inspect

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import run_ranks

SHAPES = {torch.nn.BatchNorm1d: (7, 3), torch.nn.BatchNorm2d: (7, 3, 4, 5), torch.nn.BatchNorm3d: (7, 3, 2, 2, 3)}
PARTS = [slice(0, 4), slice(4, 5), slice(5, 7)]  # ranks have batches of different sizes


def normalizes(rank, kind, options):
    torch.manual_seed(1)
    whole, upstream = torch.randn(SHAPES[kind], dtype=torch.float64) * 3 + 100, torch.randn(SHAPES[kind]).double()
    alone, layer = kind(3, **options).double(), tutti.torch.convert_sync_batchnorm(kind(3, **options).double())
    for one in (alone, layer):
        if one.weight is not None:
            torch.nn.init.constant_(one.weight, 2.0)
        if one.bias is not None:
            torch.nn.init.constant_(one.bias, -1.0)
    for _ in range(2):
        inputs = whole.clone().requires_grad_()
        mine = whole[PARTS[rank]].clone().requires_grad_()
        expected, output = alone(inputs), layer(mine)
        assert torch.allclose(output, expected[PARTS[rank]], atol=1e-9)
        expected.backward(upstream)
        output.backward(upstream[PARTS[rank]])
        assert torch.allclose(mine.grad, inputs.grad[PARTS[rank]], atol=1e-9)
    for (name, one), other in zip(layer.named_parameters(), alone.parameters()):
        dist.all_reduce(one.grad)
        assert torch.allclose(one.grad, other.grad, atol=1e-9), name
    for (name, one), other in zip(layer.named_buffers(), alone.buffers()):
        assert torch.allclose(one, other, atol=1e-9), name
    if layer.track_running_stats:
        assert torch.allclose(layer.eval()(mine.detach()), alone.eval()(mine.detach()), atol=1e-9)


OPTIONS = [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}]
if "bias" in inspect.signature(torch.nn.BatchNorm1d).parameters:  # from torch 2.15 on
    OPTIONS.append({"bias": False})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.__name__)
def test_a_layer_normalizes_the_batches_of_all_ranks(kind, options):
    run_ranks(3, normalizes, kind, options)


def is_used_in_odd_ways(rank):
    layer = tutti.torch.convert_sync_batchnorm(torch.nn.BatchNorm1d(3, track_running_stats=False))
    if rank == 0:
        layer.eval()(torch.randn(4, 3))  # a rank may evaluate alone
    layer = tutti.torch.convert_sync_batchnorm(torch.nn.BatchNorm1d(3))
    assert layer(torch.empty(0, 3)).shape == (0, 3)
    assert layer.running_mean.tolist() == [0, 0, 0], "batches that are all empty change nothing"
    batch = torch.randn(4, 3, requires_grad=True)
    gradient, = torch.autograd.grad(layer(batch).square().sum(), batch, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_odd_uses():
    run_ranks(2, is_used_in_odd_ways)


def converts(rank):
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    keys, parameters = list(module.state_dict()), list(module.parameters())
    assert tutti.torch.convert_sync_batchnorm(module, dist.group.WORLD) is module
    assert list(module.state_dict()) == keys and all(map(torch.equal, module.parameters(), parameters))
    # In half precision, statistics are single precision.
    assert module.bfloat16()(torch.randn(4, 3).bfloat16()).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        module[1](torch.ones(2, 3, 4, 5))
    assert type(tutti.torch.revert_sync_batchnorm(module)[1]) is torch.nn.BatchNorm1d


def test_conversion():
    run_ranks(2, converts)


def test_without_a_group_a_layer_is_as_before():
    layer, other = tutti.torch.convert_sync_batchnorm(torch.nn.BatchNorm1d(3)), torch.nn.BatchNorm1d(3)
    batch = torch.randn(5, 3)
    assert torch.equal(layer(batch), other(batch)) and torch.equal(layer.running_var, other.running_var)
