"""The net and the data of the examples beside this file: a LightningModule that knows nothing of Tutti."""

import lightning.pytorch as pl
import torch


class Net(pl.LightningModule):
    """Learns the sum of eight numbers."""

    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.lr = lr

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.net(inputs), targets)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        self.log("validation", torch.nn.functional.mse_loss(self.net(inputs), targets), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.5)


def data(count: int = 512, batch_size: int = 8) -> torch.utils.data.DataLoader:
    inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
    samples = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True) / 3)
    return torch.utils.data.DataLoader(samples, batch_size)
