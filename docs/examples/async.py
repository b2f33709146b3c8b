"""Every rank trains at its own pace, and weights are averaged meanwhile: torchrun --nproc-per-node 2 async.py"""

import torch
import torch.distributed as dist

import tutti.torch


def main() -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    module = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "async:sync_interval_ms=1,warmup_steps=10")
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(dist.get_rank())
    for _ in range(100 + 50 * dist.get_rank()):  # ranks need not make equally many steps
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        (model(inputs) - inputs @ goal).square().mean().backward()
        optimizer.step()
    model.flush()  # here the ranks wait for each other; all have the same weights now
    loss = (module.weight.detach().T - goal).square().mean()
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
