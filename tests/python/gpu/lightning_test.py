"""Strategies of tutti.lightning in a Trainer on a GPU, in a world of one rank."""

import tempfile

import pytest
import torch
import torch.distributed as dist

import gpus
from lightning_model import EVERY, loader, model_for, pl, weights_of

GPU = gpus.gpu(3)
NAMES = [f"tutti:{name}" for name in EVERY] + ["tutti", "bagua", "horovod", "ddp_sharded", "ddp2"]


@pytest.fixture(autouse=True)
def own_group():
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def fitted(strategy, accelerator="gpu", ckpt_path=None, **options):
    """A model after a short training, whose batches stay in place so that the loss is that of any device."""
    model = model_for(str(strategy).removeprefix("tutti:"))
    model.seen = []
    model.on_train_batch_end = lambda *_: model.seen.append({parameter.device for parameter in model.parameters()})
    devices = [GPU.index] if accelerator == "gpu" else 1
    defaults = {"max_epochs": 2, "enable_progress_bar": False, "enable_model_summary": False, "logger": False,
                "enable_checkpointing": False, "default_root_dir": tempfile.gettempdir()}
    trainer = pl.Trainer(strategy=strategy, **{"accelerator": accelerator, "devices": devices, **defaults, **options})
    trainer.fit(model, loader(), loader(16), ckpt_path=ckpt_path)
    return trainer, model


@pytest.mark.parametrize("strategy", NAMES)
def test_a_strategy_trains_on_the_gpu_of_its_rank(strategy, monkeypatch):
    chosen, choose = [], torch.cuda.set_device
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: (chosen.append(torch.device(device)), choose(device)))
    trainer, model = fitted(strategy)
    assert trainer.strategy.root_device == GPU
    assert set(chosen) == {GPU}
    assert dist.get_backend() == "tutti" and dist.group.WORLD.bound_device_id == GPU
    assert model.seen == [{GPU}] * 16
    assert trainer.validate(model, loader(16), verbose=False)[0]["validation"] < 1
    on_gpu = weights_of(model.cpu())
    dist.destroy_process_group()
    on_host = weights_of(fitted(strategy, accelerator="cpu")[1])
    assert dist.group.WORLD.bound_device_id is None
    if "async" not in strategy:  # whose rounds are made at any time
        gpus.assert_same_as_on_host(on_gpu, on_host)


def test_ddp_trains_over_tutti_on_a_gpu():
    trainer, model = fitted(pl.strategies.DDPStrategy(process_group_backend="tutti"))
    assert dist.get_backend() == "tutti" and dist.group.WORLD.bound_device_id == GPU
    assert model.seen == [{GPU}] * 16


@pytest.mark.parametrize("accelerator", ["cuda", "auto"])
def test_the_accelerator_is_the_gpu_by_other_names(accelerator):
    trainer, model = fitted("tutti:bytegrad", accelerator=accelerator, devices=1, max_steps=2)
    assert trainer.strategy.root_device == torch.device("cuda", 0)
    assert model.seen == [{torch.device("cuda", 0)}] * 2


@pytest.mark.parametrize("strategy", ["tutti", "tutti:bytegrad", "tutti:decentralized", "tutti:qadam", "ddp_sharded"])
def test_a_training_goes_on_from_a_checkpoint(strategy, tmp_path):
    whole = weights_of(fitted(strategy, max_epochs=4)[1])
    trainer, _ = fitted(strategy, max_epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    saved = torch.load(tmp_path / "half.ckpt", weights_only=False, map_location="cpu")
    assert len(saved["tutti"]) == 1
    trainer, model = fitted(strategy, max_epochs=4, ckpt_path=tmp_path / "half.ckpt")
    assert model.seen == [{GPU}] * 16, "two epochs were left"
    assert torch.equal(weights_of(model), whole)


@pytest.mark.parametrize("strategy", ["tutti", "tutti:bytegrad:codec=topk", "tutti:qadam"])
@pytest.mark.parametrize("first, second", [("cpu", "gpu"), ("gpu", "cpu")])
def test_a_checkpoint_goes_to_another_kind_of_device(strategy, first, second, tmp_path):
    whole = weights_of(fitted(strategy, accelerator=first, max_epochs=4)[1]).cpu()
    fitted(strategy, accelerator=first)[0].save_checkpoint(tmp_path / "half.ckpt")
    dist.destroy_process_group()
    trainer, model = fitted(strategy, accelerator=second, max_epochs=4, ckpt_path=tmp_path / "half.ckpt")
    assert len(model.seen) == 16
    gpus.assert_same_as_on_host(weights_of(model), whole)


@pytest.mark.parametrize("strategy", ["tutti:bytegrad", "tutti:decentralized"])
@pytest.mark.parametrize("precision", ["16-mixed", "bf16-mixed"])
def test_mixed_precision(strategy, precision):
    model_scale = []
    trainer, model = fitted(strategy, precision=precision, callbacks=[Scales(model_scale)])
    assert torch.isfinite(weights_of(model)).all() and model.seen == [{GPU}] * 16
    assert model_scale == ([32768.0] * 16 if precision == "16-mixed" else []), "a scale that overflows is halved once"


class Scales(pl.Callback):
    """Notes the scale of losses after each step, the first of which overflows."""

    def __init__(self, scales):
        self.scales = scales

    def on_after_backward(self, trainer, module):
        if trainer.global_step == 0 and not self.scales and trainer.precision_plugin.scaler is not None:
            next(module.parameters()).grad.fill_(float("inf"))

    def on_train_batch_end(self, trainer, module, *_):
        scaler = trainer.precision_plugin.scaler
        if scaler is not None:
            self.scales.append(scaler.get_scale())


def test_autotune_has_nothing_to_tune():
    trainer, model = fitted("tutti:gradient_allreduce,autotune=true")
    assert model.seen == [{GPU}] * 16


@pytest.mark.skipif(gpus.REAL, reason="needs two GPUs")
@pytest.mark.parametrize("strategy", ["dp", "ddp2"])
def test_a_strategy_that_splits_batches_takes_one_gpu(strategy):
    with pytest.raises(Exception, match=f"the strategy {strategy} splits .* 2 GPUs.*use strategy=\"ddp\"") as raised:
        fitted(strategy, devices=2)
    assert type(raised.value).__name__ == "MisconfigurationException"
    assert fitted(strategy)[1].seen == [{GPU}] * 16


def of_launcher(monkeypatch, rank, size):
    """A HorovodStrategy on a rank of several, which a launcher has started on one machine."""
    monkeypatch.setattr("tutti.lightning._environment._identity", lambda: (rank, size, rank, size, "mpirun"))
    strategy = pl.strategies.HorovodStrategy()
    strategy.parallel_devices = [torch.device("cuda", 0)]  # of Trainer(accelerator="gpu", devices=1)
    return strategy


@pytest.mark.skipif(gpus.REAL, reason="needs several GPUs")
def test_ranks_of_horovod_have_one_gpu_each(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert of_launcher(monkeypatch, 2, 4).root_device == torch.device("cuda", 2)
    for strategy in ("horovod", "Horovod", pl.strategies.HorovodStrategy()):
        assert pl.Trainer(accelerator="gpu", strategy=strategy, logger=False).strategy.root_device.index == 2
    monkeypatch.setenv("HOROVOD_SIZE", "4")
    assert pl.Trainer(accelerator="gpu", logger=False).strategy.root_device == torch.device("cuda", 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(Exception, match="has started 4 processes on this machine, which has 1 GPUs"):
        print(of_launcher(monkeypatch, 2, 4).root_device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert of_launcher(monkeypatch, 2, 4).root_device == torch.device("cuda", 0)
