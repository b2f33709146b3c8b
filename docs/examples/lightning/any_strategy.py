"""Any strategy of Tutti in a Trainer, by its name: python any_strategy.py tutti:bytegrad,codec=bf16"""

import sys

import lightning.pytorch as pl

import tutti.lightning  # registers the strategies
from net import Net, data


def main(strategy: str = "tutti:bytegrad", devices: str = "2") -> None:
    pl.seed_everything(1)
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=int(devices), max_epochs=4, logger=False)
    trainer.fit(Net(), data(), data(64))
    if trainer.is_global_zero:
        print(f"{strategy}: validation loss {trainer.callback_metrics['validation']:.4f} "
              f"on {trainer.world_size} ranks")


if __name__ == "__main__":
    main(*sys.argv[1:])
