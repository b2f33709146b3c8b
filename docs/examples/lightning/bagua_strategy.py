"""The algorithms of Lightning's BaguaStrategy: python bagua_strategy.py [algorithm]"""

import sys

import lightning.pytorch as pl

import tutti.lightning
from lightning.pytorch.strategies import BaguaStrategy
from net import Net, data
from tutti.lightning import QAdamOptimizer

OPTIONS = {
    "gradient_allreduce": {},
    "bytegrad": {},
    "decentralized": {"peer_selection_mode": "shift_one", "communication_interval": 1},
    "low_precision_decentralized": {},
    "qadam": {},
    "async": {"sync_interval_ms": 100},
}


class QAdamNet(Net):
    """The algorithm qadam works with its own optimizer only."""

    def configure_optimizers(self) -> QAdamOptimizer:
        return QAdamOptimizer(self.parameters(), lr=0.05, warmup_steps=100)


def main(algorithm: str = "bytegrad") -> None:
    pl.seed_everything(1)
    strategy = BaguaStrategy(algorithm=algorithm, **OPTIONS[algorithm])
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=2, max_epochs=4, logger=False)
    trainer.fit(QAdamNet() if algorithm == "qadam" else Net(), data(), data(64))
    if trainer.is_global_zero:
        print(f"{algorithm}: validation loss {trainer.callback_metrics['validation']:.4f} "
              f"on {trainer.world_size} ranks")


if __name__ == "__main__":
    main(*sys.argv[1:])
