"""Adam whose momentum travels in 8 bits once its variance has settled: torchrun --nproc-per-node 2 qadam.py"""

import torch
import torch.distributed as dist

import tutti.torch


def main() -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    module = torch.nn.Linear(10, 1)
    optimizer = tutti.torch.QAdam(module.parameters(), lr=0.05)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "qadam:warmup_steps=40")
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(dist.get_rank())  # every rank trains on data of its own
    for _ in range(200):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs @ goal).square().mean()
        loss.backward()  # averages gradients, and after the warm-up the momentum
        optimizer.step()
    dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
