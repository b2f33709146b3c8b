"""The Trainer of transformers on the backend tutti, in 8 bits: torchrun --nproc-per-node 2 trainer.py"""

import tempfile

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import tutti.accelerate  # lets TrainingArguments take the backend by name
import tutti.torch


class Net(torch.nn.Module):

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = self.net(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Compresses(TrainerCallback):
    """Lets the gradients of a trainer travel in 8 bits."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, *arguments, **options) -> None:
        tutti.torch.register(self.trainer.model_wrapped, "bytegrad")


def main() -> None:
    torch.manual_seed(1)
    inputs = torch.randn(512, 8)
    samples = [{"inputs": row, "labels": row.sum(0, keepdim=True) / 3} for row in inputs]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, ddp_backend="tutti", num_train_epochs=4, learning_rate=0.1,
        optim="sgd", per_device_train_batch_size=8, lr_scheduler_type="constant", report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no")
    trainer = Trainer(model=Net(), args=arguments, train_dataset=samples, eval_dataset=samples[:64])
    trainer.add_callback(Compresses(trainer))
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        print(f"loss {loss:.6f} on {arguments.world_size} ranks")


if __name__ == "__main__":
    main()
