"""What tutti.torch and the old names do with tensors on a GPU, in a world of one rank."""

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from gpus import gpu

GPU = gpu(2)


@pytest.fixture(autouse=True)
def group():
    dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1, device_id=GPU)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(4, 3, device=GPU)).square().mean().backward()
    optimizer.step()


def wrapped(strategy="decentralized"):
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 2).to(GPU)
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    return tutti.torch.DistributedDataParallel(module, optimizer, strategy), optimizer


def test_a_state_that_was_loaded_to_a_gpu():
    model, optimizer = wrapped("bytegrad:codec=topk")
    step(model, optimizer)
    saved = {name: value for name, value in model.state_dict().items()}
    extra = saved["_extra_state"]
    extra["state"] = {name: state.to(GPU) for name, state in extra["state"].items()}
    other, other_optimizer = wrapped("bytegrad:codec=topk")
    other.load_state_dict(saved)
    assert other.step == 1
    assert torch.equal(*(one.get_extra_state()["state"]["rank 0 of 1"] for one in (other, model)))


def test_the_state_of_an_optimizer_travels_to_another_gpu():
    model, optimizer = wrapped()
    step(model, optimizer)
    _, other = wrapped()
    other.load_state_dict(optimizer.state_dict())
    model.broadcast_optimizer(other)
    for mine, whole in zip(other.state.values(), optimizer.state.values(), strict=True):
        assert mine["exp_avg"].device == GPU and torch.equal(mine["exp_avg"], whole["exp_avg"])


class WithTable(torch.nn.Module):
    """A layer on the GPU, beside a table of this rank's own on the CPU."""

    _ddp_params_and_buffers_to_ignore = ["table.weight"]

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(4, 3)
        self.layer = torch.nn.Linear(3, 2).to(GPU)

    def forward(self, places):
        return self.layer(self.table(places).to(GPU))


def test_the_first_parameter_is_ignored_and_on_the_cpu():
    model = torch.nn.parallel.DistributedDataParallel(WithTable())
    tutti.torch.register(model, "bytegrad")
    model(torch.tensor([1])).sum().backward()
    assert model.module.table.weight.grad is not None and model.module.layer.weight.grad.device == GPU


def test_sync_batchnorm():
    layer = tutti.torch.convert_sync_batchnorm(torch.nn.BatchNorm1d(3)).to(GPU)
    inputs = torch.arange(12.0, device=GPU).view(4, 3)
    same = torch.nn.BatchNorm1d(3)
    torch.testing.assert_close(layer(inputs).cpu(), same(inputs.cpu()))
    torch.testing.assert_close(layer.running_var.cpu(), same.running_var)


def test_autotune_has_nothing_to_tune():
    module = torch.nn.Linear(3, 2).to(GPU)
    model = tutti.torch.DistributedDataParallel(module, torch.optim.SGD(module.parameters(), 0.1), autotune=True)
    assert model.tuning["state"] == "nothing to tune"


def test_a_script_for_bagua():
    from tutti.compat.bagua.torch_api.algorithms.bytegrad import ByteGradAlgorithm
    import tutti.compat.bagua.torch_api  # noqa: F401
    torch.cuda.set_device(GPU)
    module = torch.nn.Linear(3, 2).to(GPU)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    before = module.weight.detach().clone()
    step(module.with_bagua([optimizer], ByteGradAlgorithm()), optimizer)
    assert module.weight.device == GPU and not torch.equal(module.weight, before)


def test_the_state_of_an_optimizer_of_horovod_travels_without_its_gpu(monkeypatch):
    from tutti.compat.horovod.torch import objects
    _, optimizer = wrapped()
    optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"] = torch.ones(2, 3, device=GPU)
    sent = []
    monkeypatch.setattr(objects, "broadcast_object", lambda state, root: sent.append(state))
    monkeypatch.setattr(objects.world, "rank", lambda: 0)
    objects.broadcast_optimizer_state(optimizer, root_rank=0)
    assert sent[0]["state"][0]["exp_avg"].device.type == "cpu"


def test_a_script_for_horovod():
    import tutti.compat.horovod.torch as hvd
    dist.destroy_process_group()
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    gpu = torch.device("cuda", 0)
    module = torch.nn.Linear(3, 2).to(gpu)
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, module.named_parameters(), hvd.Compression.fp16)
    before = module.weight.detach().clone()
    optimizer.zero_grad()
    module(torch.ones(4, 3, device=gpu)).square().mean().backward()
    optimizer.step()
    assert module.weight.device == gpu and not torch.equal(module.weight, before)
    assert hvd.allgather(torch.ones(2, device=gpu)).tolist() == [1, 1]
    assert hvd.allreduce(torch.full([], 3.0, device=gpu)).item() == 3
    hvd.shutdown()
