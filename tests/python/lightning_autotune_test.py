"""Autotuning in Lightning: by the argument, by the strategy's name and by TUTTI_AUTOTUNE."""

import os

import pytest
import torch.distributed as dist

import tutti.lightning
import tutti.torch
from lightning_model import Model, loader, pl, run_trainers, trainer, weights_of


def strategies():
    return tutti.lightning.of_pytorch_lightning if pl.__name__.startswith("pytorch") else tutti.lightning


def fits(rank, strategy, arguments):
    if strategy is None:
        strategy = strategies().TuttiStrategy(**arguments)
    model, wrapped = Model(), []
    fitted = trainer(strategy, max_epochs=3)
    model.on_train_start = lambda: wrapped.append(fitted.strategy.model)
    fitted.fit(model, loader())
    tunes = isinstance(wrapped[0], tutti.torch.DistributedDataParallel)
    return weights_of(model).tolist(), wrapped[0].tuning["state"] if tunes else "stock"


@pytest.mark.parametrize("strategy, arguments, variable, state", [
    (None, {"autotune": True}, "", "tuned"),
    ("tutti:gradient_allreduce,autotune=true", {}, "", "tuned"),
    ("tutti:gradient_allreduce,autotune=false", {}, "1", "stock"),
    ("tutti", {}, "1", "tuned"),
    ("tutti", {}, "", "stock"),
])
def test_gradients_are_averaged_alike(monkeypatch, strategy, arguments, variable, state):
    monkeypatch.setenv("TUTTI_AUTOTUNE", variable)
    results = run_trainers(2, fits, strategy, arguments)
    assert all(("stock" if found == "stock" else "tuned") == state for _, found in results)
    monkeypatch.setenv("TUTTI_AUTOTUNE", "")
    expected, _ = run_trainers(2, fits, "tutti", {})[0]
    for weights, _ in results:
        assert weights == pytest.approx(expected, abs=1e-6)


def accumulates_and_resumes(rank, folder):
    path = os.path.join(folder, "a.ckpt")
    first = trainer("tutti:gradient_allreduce,autotune=true", max_epochs=1, accumulate_grad_batches=2)
    model = Model()
    first.fit(model, loader())
    assert first.global_step == 2
    first.save_checkpoint(path)
    dist.barrier()
    for strategy in ("tutti", "tutti:gradient_allreduce,autotune=true"):
        resumed, other = trainer(strategy, max_epochs=2, accumulate_grad_batches=2), Model()
        resumed.fit(other, loader(), ckpt_path=path)
        assert resumed.global_step == 4


def test_a_checkpoint_goes_on_with_and_without(tmp_path):
    run_trainers(2, accumulates_and_resumes, str(tmp_path))


def is_refused(rank):
    with pytest.raises(ValueError, match="autotune=true or autotune=false"):
        trainer("tutti:gradient_allreduce,autotune=yes")
    with pytest.raises(ValueError, match="static_graph is an option of .* without autotune"):
        trainer(strategies().TuttiStrategy(autotune=True, static_graph=True)).fit(Model(), loader())


def test_mistakes_are_named():
    run_trainers(1, is_refused)


def is_sharded(rank):
    with pytest.raises(Exception, match="ddp_sharded trains in torch's DistributedDataParallel"):
        trainer(strategies().DDPShardedStrategy(autotune=True)).fit(Model(), loader())


def test_sharded_optimizers_are_refused():
    run_trainers(1, is_sharded)
