"""A script for Lightning 1: PL_TORCH_DISTRIBUTED_BACKEND=tutti python -m tutti.compat lightning1.py"""

import pytorch_lightning as pl
import torch


class Model(pl.LightningModule):

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def training_epoch_end(self, outputs):
        loss = self.all_gather(torch.stack([output["loss"] for output in outputs])).mean()
        if self.trainer.is_global_zero:
            print(f"loss {loss:.3f} on {self.trainer.world_size} ranks", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(1)
    rows = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8)
    trainer = pl.Trainer(
        num_processes=2,
        accelerator="ddp",
        max_epochs=3,
        checkpoint_callback=False,
        logger=False,
        progress_bar_refresh_rate=0,
    )
    trainer.fit(Model(), rows)
