"""A small model and its data for the tests of Lightning, and Trainers that run on forked ranks."""

import importlib
import os
import tempfile
import warnings

import torch

import tutti.lightning
from ranks import run_ranks

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=FutureWarning)
pl = importlib.import_module(os.environ.get("TUTTI_TEST_LIGHTNING", "lightning.pytorch"))

GRADIENTS = ["gradient_allreduce", "bytegrad"]
WEIGHTS = ["decentralized", "low_precision_decentralized", "async:sync_interval_ms=1"]
EVERY = [*GRADIENTS, *WEIGHTS, "qadam"]


def samples(count=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 6, generator=generator)
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True) / 3)


def loader(count=64, batch_size=8, seed=0, **options):
    return torch.utils.data.DataLoader(samples(count, seed), batch_size=batch_size, **options)


class Model(pl.LightningModule):
    """Learns the sum of six numbers."""

    def __init__(self, lr=0.05, optimizer="sgd"):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.lr, self.optimizer = lr, optimizer

    def forward(self, inputs):
        return self.net(inputs)

    def loss(self, batch):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self(inputs), targets)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("validation", self.loss(batch), sync_dist=True)

    def test_step(self, batch, batch_idx):
        self.log("test", self.loss(batch), sync_dist=True)

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        if self.optimizer == "qadam":
            return tutti.lightning.QAdamOptimizer(self.parameters(), lr=self.lr, warmup_steps=4)
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.5)


def model_for(strategy, **options):
    """A model with the optimizer that the strategy needs."""
    return Model(optimizer="qadam" if strategy.startswith("qadam") else "sgd", **options)


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def trainer(strategy="gradient_allreduce", devices=None, **options):
    """A quiet Trainer on a CPU, on all ranks of this process's world; ``strategy`` may be a name without `tutti:`."""
    if isinstance(strategy, str) and strategy.partition(":")[0] in {name.partition(":")[0] for name in EVERY}:
        strategy = f"tutti:{strategy}"
    defaults = {"max_epochs": 2, "enable_progress_bar": False, "enable_model_summary": False, "logger": False,
                "enable_checkpointing": False, "default_root_dir": tempfile.gettempdir()}
    return pl.Trainer(strategy=strategy, accelerator="cpu", devices=devices or int(os.environ["TEST_RANKS"]),
                      **{**defaults, **options})


def _on_a_rank(rank, function, arguments, size):
    os.environ.update(LOCAL_RANK=str(rank), TEST_RANKS=str(size))
    return function(rank, *arguments)


def run_trainers(size, function, *arguments, **options):
    """``run_ranks`` for a function that makes Trainers, which find the ranks as if Lightning had started them."""
    return run_ranks(size, _on_a_rank, function, arguments, size, **options)
