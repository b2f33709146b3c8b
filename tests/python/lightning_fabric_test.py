"""Fabric of Lightning with the strategies of Tutti."""

import os

import pytest
import torch
import torch.distributed as dist

import tutti.lightning
import tutti.torch
from lightning_model import EVERY, Model, loader, run_trainers, weights_of


def fabric(strategy):
    from lightning.fabric import Fabric
    made = Fabric(strategy=strategy, accelerator="cpu", devices=int(os.environ["TEST_RANKS"]))
    made.launch()
    return made


def trains(rank, strategy):
    made = fabric(f"tutti:{strategy}")
    module = Model().net
    optimizer = (tutti.torch.QAdam(module.parameters(), 0.05) if strategy == "qadam" else
                 torch.optim.SGD(module.parameters(), 0.05, momentum=0.5))
    model, optimizer = made.setup(module, optimizer)
    data = made.setup_dataloaders(loader(shuffle=True))
    losses = []
    for epoch in range(6):
        for index, (inputs, targets) in enumerate(data):
            with made.no_backward_sync(model, enabled=index % 2 == 0):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                made.backward(loss)
            if index % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
        losses.append(float(made.all_reduce(loss.detach(), reduce_op="mean")))
    assert losses[-1] < 0.5 * losses[0], losses
    made.save(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), {"model": model})
    saved = torch.load(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), weights_only=True)
    assert list(saved["model"]) == list(module.state_dict())
    made.barrier()
    made.load(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), {"model": model})
    weights = [torch.empty_like(weights_of(module)) for _ in range(2)]
    dist.all_gather(weights, weights_of(module))
    assert torch.equal(*weights)


@pytest.mark.parametrize("strategy", EVERY)
def test_a_strategy_trains(strategy, tmp_path, monkeypatch):
    monkeypatch.setenv("FABRIC_FOLDER", str(tmp_path))
    run_trainers(2, trains, strategy)


def has_no_optimizer(rank):
    with pytest.raises(ValueError, match="needs the optimizers"):
        fabric("tutti:decentralized").setup(Model().net)
    with pytest.raises(ValueError, match="bytegrad"):
        fabric("tutti:bytegrd")


def test_mistakes():
    run_trainers(1, has_no_optimizer)
