"""Lightning's own ddp, faster: python ddp.py. The one change is the backend's name."""

import lightning.pytorch as pl
from lightning.pytorch.strategies import DDPStrategy

import tutti.torch  # registers the backend; from torch 2.14 on torch finds it by itself
from net import Net, data


def main() -> None:
    pl.seed_everything(1)
    strategy = DDPStrategy(process_group_backend="tutti")
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=2, max_epochs=4, logger=False)
    trainer.fit(Net(), data(), data(64))
    if trainer.is_global_zero:
        print(f"ddp: validation loss {trainer.callback_metrics['validation']:.4f} on {trainer.world_size} ranks")


if __name__ == "__main__":
    main()
