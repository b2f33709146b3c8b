"""torch's own ways to train on several ranks, unchanged, on the backend `tutti`: all end with the weights of one process."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch
from ranks import run_ranks


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = torch.nn.Linear(10, 20)
        self.norm = torch.nn.BatchNorm1d(20)
        self.second = torch.nn.Linear(20, 5)
        self.unused = torch.nn.Linear(3, 3)

    def forward(self, x, use=False):
        y = self.second(torch.relu(self.norm(self.first(x))))
        return y + self.unused(y[:, :3]).mean() if use else y


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 10, generator=generator)


def train(model, rank, steps=6, **arguments):
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step, rank), **arguments).square().mean().backward()
        optimizer.step()


def expect_equal_replicas(module):
    for name, tensor in module.named_parameters():
        ranks = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(ranks, tensor.detach())
        assert all(torch.equal(ranks[0], other) for other in ranks), name


def against_gloo(rank, options, use):
    """The same training over a group of gloo beside it gives the same weights, up to the order of the sums."""
    options = dict(options)
    model = Net()
    other = copy.deepcopy(model)
    ours = DistributedDataParallel(model, **options)
    gloos = DistributedDataParallel(other, process_group=dist.new_group(backend="gloo"), **options)
    for wrapped in (ours, gloos):
        train(wrapped, rank, use=use)
    expect_equal_replicas(model)
    for a, b in zip(model.parameters(), other.parameters()):
        assert torch.allclose(a, b, atol=1e-5)
        assert (a.grad is None) == (b.grad is None)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("options, use", [
    ({"find_unused_parameters": True}, False),
    ({"find_unused_parameters": True, "gradient_as_bucket_view": True}, False),
    ({"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}, True),
    ({"static_graph": True}, True),
    ({"broadcast_buffers": False}, True),
], ids=str)
def test_data_parallel(size, options, use):
    run_ranks(size, against_gloo, options, use)


def joins_uneven_inputs(rank):
    model = DistributedDataParallel(torch.nn.Linear(10, 2))
    with model.join():
        for step in range(3 + rank):
            model(batch(step, rank)).sum().backward()
    expect_equal_replicas(model.module)


def accumulates_and_checkpoints(rank):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Net):
        def forward(self, x):
            return self.second(torch.relu(checkpoint(self.first, x, use_reentrant=True)))

    module = Checkpointed()
    del module.unused, module.norm
    model = DistributedDataParallel(module, static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        data = batch(step, rank).requires_grad_()
        model(data).square().mean().backward()
        optimizer.step()
    expect_equal_replicas(module)
    plain = DistributedDataParallel(torch.nn.Linear(10, 2))
    with plain.no_sync():
        plain(batch(0, rank)).sum().backward()
    plain(batch(1, rank)).sum().backward()
    gradients = [torch.empty_like(plain.module.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(gradients, plain.module.weight.grad)
    assert all(torch.equal(gradients[0], other) for other in gradients)


def compiles(rank, strategy=None):
    """torch.compile cuts the graph at the buckets of DDP, whose all_reduces then run between the parts."""
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(10, 700), torch.nn.ReLU(), torch.nn.Linear(700, 700), torch.nn.ReLU(),
                                 torch.nn.Linear(700, 5))
    other = copy.deepcopy(module)
    compiled = torch.compile(DistributedDataParallel(module, bucket_cap_mb=1), backend="aot_eager")
    plain = DistributedDataParallel(other, bucket_cap_mb=1)
    for model in (compiled, plain):
        if strategy is not None:
            tutti.torch.register(model, strategy)
        train(model, rank)
    expect_equal_replicas(module)
    for a, b in zip(module.parameters(), other.parameters()):
        assert torch.allclose(a, b, atol=1e-6)


def hooks(rank):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, state in ((default_hooks.allreduce_hook, None), (default_hooks.fp16_compress_hook, None),
                        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2))):
        module = torch.nn.Linear(10, 8)
        model = DistributedDataParallel(module)
        model.register_comm_hook(state, hook)
        train(model, rank)
        expect_equal_replicas(module)


def fully_shards_flat_parameters(rank):
    """The first FSDP, which is a class."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5))
    other = copy.deepcopy(module)
    sharded = FullyShardedDataParallel(module, device_id=torch.device("cpu"))
    for model in (sharded, DistributedDataParallel(other)):
        train(model, rank)
    with FullyShardedDataParallel.summon_full_params(sharded):
        for a, b in zip(sharded.parameters(), other.parameters()):
            assert torch.allclose(a, b, atol=1e-6)


def fully_shards(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
    whole = copy.deepcopy(module)
    size = dist.get_world_size()
    fully_shard(module, mesh=init_device_mesh("cpu", (size,)))
    train(module, rank)
    optimizer = torch.optim.SGD(whole.parameters(), 0.01, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad()
        sum(whole(batch(step, r)).square().mean() for r in range(size)).div(size).backward()
        optimizer.step()
    for a, b in zip(module.parameters(), whole.parameters()):
        assert torch.allclose(a.full_tensor(), b, atol=1e-5)


def hybrid_shards(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    module = torch.nn.Linear(10, 5)
    fully_shard(module, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    train(module, rank)
    value = module.weight.full_tensor().detach()
    ranks = [torch.empty_like(value) for _ in range(4)]
    dist.all_gather(ranks, value)
    assert all(torch.equal(ranks[0], other) for other in ranks)


def distributes_tensors(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    a, b = torch.randn(7, 6), torch.randn(6, 9)
    product = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
    assert torch.allclose(product.full_tensor(), a @ b, atol=1e-5)
    moved = distribute_tensor(a, mesh, [Shard(0)]).redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()])
    assert torch.equal(moved.to_local(), a)


def saves_and_loads(rank, directory):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def sharded(seed):
        torch.manual_seed(seed)
        module = torch.nn.Linear(10, 6)
        return fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))

    saved = sharded(1)
    checkpoint.save(saved.state_dict(), checkpoint_id=directory)
    loaded = sharded(2)
    state = loaded.state_dict()
    checkpoint.load(state, checkpoint_id=directory)
    loaded.load_state_dict(state)
    assert torch.equal(loaded.weight.full_tensor(), saved.weight.full_tensor())


def zero_redundancy(rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module = torch.nn.Linear(10, 8)
    model = DistributedDataParallel(module)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(batch(step, rank)).square().mean().backward()
        optimizer.step()
    expect_equal_replicas(module)


def differentiable_gather(rank):
    from torch.distributed.nn.functional import all_gather

    tensor = torch.full((3,), rank + 1.0, requires_grad=True)
    torch.stack(all_gather(tensor)).square().sum().backward()
    assert tensor.grad.tolist() == [2 * dist.get_world_size() * (rank + 1.0)] * 3


@pytest.mark.parametrize("function", [
    joins_uneven_inputs, accumulates_and_checkpoints, compiles, hooks, fully_shards, fully_shards_flat_parameters,
    distributes_tensors, zero_redundancy, differentiable_gather
], ids=lambda function: function.__name__)
def test_way(function):
    run_ranks(2, function)


def test_a_strategy_in_a_compiled_model():
    run_ranks(2, compiles, "gradient_allreduce")


def test_hybrid_sharding():
    run_ranks(4, hybrid_shards)


def test_checkpoint(tmp_path):
    run_ranks(2, saves_and_loads, str(tmp_path / "checkpoint"))
