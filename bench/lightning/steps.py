"""A training in Lightning's Trainer whose steps `python -m tutti.compare` measures, ddp on gloo beside ddp on Tutti.

    python -m tutti.compare --pairs 9 --json NET.json bench/lightning/steps.py NET

NET is `convolutions`, whose steps are all but compute (0.1 million parameters), or `linear`, whose steps are mostly
communication (8.4 million parameters, 16 samples). Inputs are random numbers.
"""

import os
import sys

import lightning.pytorch as pl
import torch
from torch import nn

NETS = {
    "convolutions": (lambda: nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)), (32, 3, 32, 32)),
    "linear": (lambda: nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 10)),
               (16, 1024)),
}


class Module(pl.LightningModule):

    def __init__(self, net):
        super().__init__()
        self.net = net

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(name):
    torch.set_num_threads(1)
    pl.seed_everything(1)
    make, (batch, *shape) = NETS[name]
    samples = torch.utils.data.TensorDataset(torch.randn(8 * batch, *shape), torch.randint(10, (8 * batch,)))
    trainer = pl.Trainer(strategy="ddp", accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=1000,
                         logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(make()), torch.utils.data.DataLoader(samples, batch))


if __name__ == "__main__":
    main(sys.argv[1])
