"""The strategy horovod, whose processes a launcher starts: mpirun -n 2 python horovod_strategy.py"""

import lightning.pytorch as pl

import tutti.lightning
from net import Net, data


def main() -> None:
    pl.seed_everything(1)
    # The learning rate is multiplied by the number of processes, as Horovod's users expect.
    trainer = pl.Trainer(strategy="horovod", accelerator="cpu", devices=1, max_epochs=4, logger=False)
    trainer.fit(Net(lr=0.02), data(), data(64))
    if trainer.is_global_zero:
        print(f"horovod: validation loss {trainer.callback_metrics['validation']:.4f} on {trainer.world_size} ranks")


if __name__ == "__main__":
    main()
