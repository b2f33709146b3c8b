"""lightning1.py, as it is written today."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy

import tutti.torch  # registers the backend


class Model(pl.LightningModule):

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses = []

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        loss = self.all_gather(torch.stack(self.losses)).mean()
        self.losses.clear()
        if self.trainer.is_global_zero:
            print(f"loss {loss:.3f} on {self.trainer.world_size} ranks", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    pl.seed_everything(1)
    rows = torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=8)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="tutti"),
        max_epochs=3,
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), rows)
