"""A training loop of Accelerate on the backend tutti: torchrun --nproc-per-node 2 accelerate_loop.py"""

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

import tutti.accelerate  # lets Accelerate take the backend by name


def main() -> None:
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
    inputs = torch.randn(512, 8)
    samples = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True) / 3)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(samples, batch_size=8))
    for _ in range(4):
        for features, targets in data:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(features), targets)
                accelerator.backward(loss)
                optimizer.step()
    loss = accelerator.reduce(loss.detach(), "mean")
    accelerator.print(f"loss {loss:.6f} on {accelerator.num_processes} ranks")
    accelerator.end_training()


if __name__ == "__main__":
    main()
