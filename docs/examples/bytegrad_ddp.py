"""Stock DistributedDataParallel whose gradients travel in 8 bits: torchrun --nproc-per-node 2 bytegrad_ddp.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch


def main() -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(10, 1))
    tutti.torch.register(model, "bytegrad")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(dist.get_rank())  # every rank trains on data of its own
    for _ in range(100):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs @ goal).square().mean()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
