"""Several ranks, whose tensors are on GPUs."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import tutti.torch
from gpus import run_ranks


def inputs_of(rank, step=0):
    return torch.arange(12.0).view(4, 3).add(5 * rank + step) / 10


def new_module():
    torch.random.manual_seed(1)
    return torch.nn.Linear(3, 2)


def optimizer_for(strategy, module):
    kind = tutti.torch.QAdam if strategy.startswith("qadam") else torch.optim.Adam
    return kind(module.parameters(), 0.1)


def trains(strategy, makes, backend="tutti"):
    modules = [new_module() for _ in range(2)]  # here, because ranks may be threads, which share the seed

    def on_a_rank(rank, gpu):
        module = modules[rank].to(gpu)
        optimizer = optimizer_for(strategy, module)
        model = makes(module, optimizer, strategy)
        for step in range(4):
            optimizer.zero_grad()
            model(inputs_of(rank, step).to(gpu)).square().mean().backward()
            optimizer.step()
        if hasattr(model, "flush"):
            model.flush()
        assert module.weight.device == gpu
        return module.weight.detach().cpu()

    return run_ranks(2, on_a_rank, backend)


def trains_alone(rank, gpu):
    module = new_module()
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        (sum(module(inputs_of(rank, step)).square().mean() for rank in range(2)) / 2).backward()
        optimizer.step()
    return module.weight.detach()


def trained_alone():
    """The weight after the same steps on the host, in a rank, because a process that has done a backward has used CUDA."""
    return run_ranks(1, trains_alone)[0]


def wrap(module, optimizer, strategy):
    return tutti.torch.DistributedDataParallel(module, optimizer, strategy)


def torchs_own(module, optimizer, strategy):
    return DistributedDataParallel(module, device_ids=[module.weight.device.index])


def register(module, optimizer, strategy):
    model = torchs_own(module, optimizer, strategy)
    tutti.torch.register(model, strategy)
    return model


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "bytegrad", "decentralized", "low_precision_decentralized",
                                      "async:sync_interval_ms=1,warmup_steps=2", "qadam:warmup_steps=2"])
def test_a_strategy_keeps_the_replicas_equal(strategy):
    first, second = trains(strategy, wrap)
    assert torch.equal(first, second) and not torch.equal(first, new_module().weight)
    if strategy == "gradient_allreduce":
        torch.testing.assert_close(first, trained_alone())


def test_ddp_over_the_backend():
    first, second = trains("none", torchs_own)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, trained_alone())


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "bytegrad"])
def test_ddp_with_an_algorithm(strategy):
    first, second = trains(strategy, register)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, trained_alone(), atol=0.02, rtol=0)


@pytest.mark.parametrize("makes", [wrap, register])
def test_a_group_whose_cpu_has_another_backend(makes):
    first, second = trains("bytegrad", makes, "cpu:gloo,cuda:tutti")
    assert torch.equal(first, second) and not torch.equal(first, new_module().weight)


def takes_the_state_of_rank_0(rank, gpu):
    module = torch.nn.Linear(3, 2, device=gpu)
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized")
    model(inputs_of(rank).to(gpu)).square().mean().backward()
    optimizer.step()
    mine = [state["exp_avg"].cpu() for state in optimizer.state.values()]
    model.broadcast_optimizer(optimizer)
    assert all(state["exp_avg"].device == gpu for state in optimizer.state.values())
    group = optimizer.param_groups[0]
    model.broadcast_optimizer(optimizer)
    assert optimizer.param_groups[0] is group, "states are equal but for their GPUs, and stay"
    return mine, [state["exp_avg"].cpu() for state in optimizer.state.values()]


def test_the_state_of_an_optimizer_travels_to_another_gpu():
    (whole, _), (mine, taken) = run_ranks(2, takes_the_state_of_rank_0)
    assert all(map(torch.equal, whole, taken)) and not torch.equal(whole[0], mine[0])


def takes_state_of_no_parameter(rank, gpu):
    module = torch.nn.Linear(3, 2, device=gpu)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    optimizer.state["slow"] = torch.full([2], float(rank), device=gpu)
    tutti.torch.DistributedDataParallel(module, optimizer, "decentralized").broadcast_optimizer(optimizer)
    return optimizer.state["slow"].device == gpu, optimizer.state["slow"].tolist()


def test_state_of_no_parameter_stays_on_the_gpu():
    assert run_ranks(2, takes_state_of_no_parameter) == [(True, [0, 0])] * 2


def meets_on_a_mesh(rank, gpu):
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("one", "both"))
    sums = []
    for name in mesh.mesh_dim_names:
        dist.all_reduce(tensor := torch.full([3], rank + 1.0, device=gpu), group=mesh[name].get_group())
        sums.append(float(tensor[0]))
    return sums


def test_a_mesh_of_two_dimensions_splits_the_default_group():
    assert run_ranks(2, meets_on_a_mesh) == [[1, 3], [2, 3]]


def normalizes(rank, gpu):
    layer = tutti.torch.convert_sync_batchnorm(torch.nn.BatchNorm1d(3)).to(gpu)
    return layer(inputs_of(rank).to(gpu)).detach().cpu()


def test_sync_batchnorm():
    whole = torch.nn.BatchNorm1d(3)(torch.cat([inputs_of(rank) for rank in range(2)])).detach()
    torch.testing.assert_close(torch.cat(run_ranks(2, normalizes)), whole)
