"""Fabric of Lightning with the strategies of Tutti on a GPU."""

import pytest
import torch
import torch.distributed as dist
from lightning.fabric import Fabric

import tutti.lightning  # noqa: F401  registers the strategies
import tutti.torch
from gpus import gpu
from lightning_model import EVERY, Model, loader, weights_of

GPU = gpu(5)


@pytest.fixture(autouse=True)
def own_group():
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def start(strategy, **options):
    made = Fabric(strategy=f"tutti:{strategy}", accelerator="gpu", devices=[GPU.index], **options)
    made.launch()
    module = Model().net
    optimizer = (tutti.torch.QAdam(module.parameters(), 0.05) if strategy == "qadam" else
                 torch.optim.SGD(module.parameters(), 0.05, momentum=0.5))
    return made, module, *made.setup(module, optimizer)


def train(made, model, optimizer):
    for inputs, targets in made.setup_dataloaders(loader()):
        assert inputs.device == GPU
        optimizer.zero_grad()
        made.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()


@pytest.mark.parametrize("strategy", EVERY)
def test_a_strategy_trains_and_goes_on_from_a_checkpoint(strategy, tmp_path):
    made, module, model, optimizer = start(strategy)
    assert dist.group.WORLD.bound_device_id == GPU and dist.get_backend() == "tutti"
    before = weights_of(module)
    assert before.device == GPU
    train(made, model, optimizer)
    assert not torch.equal(weights_of(module), before)
    made.save(tmp_path / "state.ckpt", {"model": model, "optimizer": optimizer})
    saved = weights_of(module)
    train(made, model, optimizer)
    whole = weights_of(module)
    made, module, model, optimizer = start(strategy)
    made.load(tmp_path / "state.ckpt", {"model": model, "optimizer": optimizer})
    assert torch.equal(weights_of(module), saved) and saved.device == GPU
    train(made, model, optimizer)
    if "async" not in strategy:  # whose rounds are made at any time
        assert torch.equal(weights_of(module), whole)


@pytest.mark.parametrize("strategy", ["bytegrad", "decentralized"])
def test_16_mixed(strategy):
    made, module, model, optimizer = start(strategy, precision="16-mixed")
    before = weights_of(module)
    train(made, model, optimizer)
    assert not torch.equal(weights_of(module), before) and torch.isfinite(weights_of(module)).all()
