"""A Trainer of Lightning on two ranks, whose models are on GPUs."""

import tempfile

import pytest
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment

from lightning_model import GRADIENTS, WEIGHTS, loader, model_for, pl, weights_of
from gpus import place, run_ranks


class OfThread(LightningEnvironment):
    """Who this rank is, which Lightning would ask variables of the process."""

    creates_processes_externally = True

    def __init__(self, rank, size):
        super().__init__()
        self._rank, self._size = rank, size

    def global_rank(self):
        return self._rank

    def local_rank(self):
        return place(self._rank, self._size)[0]

    def world_size(self):
        return self._size


def fits(strategy, **options):
    model_of = [model_for(strategy.removeprefix("tutti:")) for _ in range(2)]  # which set the seed

    def on_a_rank(rank, gpu):
        model, seen = model_of[rank], set()
        model.on_train_batch_end = lambda *_: seen.update(parameter.device for parameter in model.parameters())
        _, devices, machines = place(rank, 2)
        trainer = pl.Trainer(
            strategy=strategy, accelerator="gpu", devices=devices, num_nodes=machines, plugins=[OfThread(rank, 2)],
            max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            default_root_dir=tempfile.gettempdir(), **options)
        trainer.fit(model, loader(), loader(16))
        assert trainer.strategy.root_device == gpu and seen == {gpu}
        assert trainer.world_size == 2 and trainer.global_step == 3 * 4, "ranks share the samples"
        return weights_of(model), float(trainer.callback_metrics["validation"])

    return run_ranks(2, on_a_rank)


@pytest.mark.parametrize("strategy", [*(f"tutti:{name}" for name in [*GRADIENTS, *WEIGHTS, "qadam"]), "ddp_sharded"])
def test_a_strategy_keeps_the_replicas_equal(strategy):
    (first, loss), (second, same_loss) = fits(strategy)
    assert torch.equal(first, second) and loss == same_loss < 1


@pytest.mark.parametrize("strategy", ["tutti:bytegrad", "tutti:decentralized"])
def test_mixed_precision_keeps_the_replicas_equal(strategy):
    (first, _), (second, _) = fits(strategy, precision="16-mixed")
    assert torch.equal(first, second) and torch.isfinite(first).all()
