"""dp and ddp2, where training_step_end sees the outputs for the whole batch of a machine: python step_end.py dp"""

import sys

import lightning.pytorch as pl
import torch

import tutti.lightning
from net import Net, data


class StepEndNet(Net):

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> dict[str, torch.Tensor]:
        inputs, targets = batch  # a piece of the batch, for one of the devices
        return {"outputs": self.net(inputs), "targets": targets}

    def training_step_end(self, gathered: dict[str, torch.Tensor]) -> torch.Tensor:
        # The outputs of all pieces: a loss over the whole batch, such as a softmax over all its samples, goes here.
        return torch.nn.functional.mse_loss(gathered["outputs"], gathered["targets"])


def main(strategy: str = "dp") -> None:
    pl.seed_everything(1)
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=2, max_epochs=4, logger=False)
    trainer.fit(StepEndNet(), data(batch_size=16), data(64))
    if trainer.is_global_zero:
        print(f"{strategy}: validation loss {trainer.callback_metrics['validation']:.4f} "
              f"on {trainer.world_size} ranks")


if __name__ == "__main__":
    main(*sys.argv[1:])
