"""Tools of Lightning around a training: the command line, batch sizes, progress bars, Slurm, elastic restarts."""

import os
import signal

import pytest
import torch

import tutti.lightning
import forked_python
from launchers import TORCHRUN, run, write
from lightning_model import Model, loader, pl, run_trainers, samples, trainer

forked_python.import_once("torch._dynamo", "lightning.pytorch.cli", "lightning.pytorch.demos.boring_classes",
                          "tutti.lightning")


class TakesBatches(Model):

    def __init__(self):
        super().__init__()
        self.batch_size = 2

    def train_dataloader(self):
        return torch.utils.data.DataLoader(samples(64), batch_size=self.batch_size)

    def val_dataloader(self):
        return loader(16)


def test_batch_size_finder(tmp_path):
    model = TakesBatches()
    fitted = trainer("dp", devices=2, max_epochs=1, default_root_dir=tmp_path)
    pl.tuner.Tuner(fitted).scale_batch_size(model, steps_per_trial=1, max_trials=3)
    assert model.batch_size == 8
    fitted.fit(model)
    with pytest.raises(ValueError, match="not supported with distributed strategies"):  # Lightning's own words
        pl.tuner.Tuner(trainer("tutti", devices=1)).scale_batch_size(model)


def prints_on_rank_0(rank, path):
    from lightning.pytorch.utilities import rank_zero_only
    model = Model()
    model.on_train_start = rank_zero_only(lambda: open(path, "a").write(f"rank {rank}\n"))
    bar = pl.callbacks.TQDMProgressBar()
    fitted = trainer(max_epochs=1, callbacks=[bar], enable_progress_bar=True)
    fitted.fit(model, loader())
    assert bar.is_disabled == (rank != 0)


def test_rank_0_alone_shows_progress(tmp_path):
    run_trainers(2, prints_on_rank_0, str(tmp_path / "printed"))
    assert (tmp_path / "printed").read_text() == "rank 0\n"


CLI = """
import torch, lightning.pytorch as pl
import tutti.lightning
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringDataModule, DemoModel
cli = LightningCLI(DemoModel, BoringDataModule, save_config_callback=None, run=False)
print(type(cli.trainer.strategy).__name__, cli.trainer.strategy.algorithm)
"""


@pytest.mark.parametrize("arguments, expected", [
    (["--trainer.strategy=tutti:bytegrad"], "TuttiStrategy bytegrad:"),
    (["--trainer.strategy=BaguaStrategy", "--trainer.strategy.algorithm=decentralized"], "BaguaStrategy decentralized:"),
])
def test_lightning_cli(arguments, expected, tmp_path):
    pytest.importorskip("jsonargparse")
    words = [write(tmp_path, CLI), "--trainer.accelerator=cpu", "--trainer.devices=1", *arguments]
    assert expected in forked_python.run(words).stdout


def is_requeued(rank, folder):
    from lightning.fabric.plugins.environments import SLURMEnvironment
    os.environ.update(SLURM_JOB_ID="77", SLURM_NTASKS="2", SLURM_JOB_NAME="train", SLURM_PROCID=str(rank),
                      SLURM_LOCALID=str(rank), SLURM_NODEID="0", SLURM_NTASKS_PER_NODE="2", SRUN_COMM_HOST="127.0.0.1")
    model = Model()

    def signals(batch, batch_idx):
        if batch_idx == 1 and rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)  # Slurm gives notice to one rank, or to each at another moment

    model.on_train_batch_start = signals
    slurm = SLURMEnvironment(auto_requeue=True)
    fitted = trainer("decentralized", max_epochs=2, plugins=[slurm], default_root_dir=folder)
    fitted.fit(model, loader())
    assert os.path.exists(f"{folder}/hpc_ckpt_1.ckpt")
    checkpoint = torch.load(f"{folder}/hpc_ckpt_1.ckpt", weights_only=False)
    assert checkpoint["global_step"] == 2 and len(checkpoint["tutti"]) == 2


def test_slurm_requeues_a_job(tmp_path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/requeued\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run_trainers(2, is_requeued, str(tmp_path))
    assert set((tmp_path / "requeued").read_text().splitlines()) == {"requeue 77"}


RESTARTS = """
import os, sys, torch
import lightning.pytorch as pl
import tutti.lightning
from lightning.pytorch.demos.boring_classes import BoringModel

class Model(BoringModel):
    def training_step(self, batch, batch_idx):
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if first and self.current_epoch == 2 and batch_idx == 1 and self.global_rank == 1:
            os.kill(os.getpid(), 9)
        return super().training_step(batch, batch_idx)

folder, strategy = sys.argv[1:]
devices, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
save = pl.callbacks.ModelCheckpoint(folder, save_last=True)
trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=devices, num_nodes=nodes, max_epochs=4,
                     callbacks=[save], logger=False, limit_train_batches=2, limit_val_batches=1, enable_progress_bar=False)
last = f"{folder}/last.ckpt"
trainer.fit(Model(), ckpt_path=last if os.path.exists(last) else None)
os.write(1, f"<rank {trainer.global_rank} ended at step {trainer.global_step} epoch {trainer.current_epoch}>\\n".encode())
"""


def check_second_life(text, ranks=2):
    assert sorted(line for line in text.split("\n") if line.startswith("<")) == [
        f"<rank {rank} ended at step 8 epoch 4>" for rank in range(ranks)
    ], text


def test_torchrun_restarts_after_a_killed_rank(tmp_path):
    check_second_life(run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1,
                           write(tmp_path, RESTARTS), tmp_path, "bagua"]).stdout)


def test_a_job_goes_on_after_a_killed_rank(tmp_path):
    words = [write(tmp_path, RESTARTS), tmp_path, "tutti:decentralized"]
    first = forked_python.run_on_ranks(2, words, expected=1)
    assert "<rank" not in first.stdout and "rank 1" in first.stderr, first
    check_second_life(forked_python.run_on_ranks(2, words, TORCHELASTIC_RESTART_COUNT=1).stdout)


def test_a_job_goes_on_with_a_node_less(tmp_path):
    words = [write(tmp_path, RESTARTS), tmp_path, "bagua"]
    nodes = {"GROUP_WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "LOCAL_RANK": 0}  # of one rank each
    first = forked_python.run_on_ranks(2, words, expected=1, **nodes)
    assert "<rank" not in first.stdout and "rank 1" in first.stderr, first
    check_second_life(forked_python.run_on_ranks(1, words, TORCHELASTIC_RESTART_COUNT=1).stdout, ranks=1)
