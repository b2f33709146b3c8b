"""Every rank mixes weights with one other rank in each step: torchrun --nproc-per-node 2 decentralized.py

The first argument may be another strategy, such as low_precision_decentralized or bytegrad: the loop stays as it is.
"""

import sys

import torch
import torch.distributed as dist

import tutti.torch


def main(strategy: str = "decentralized:peer_selection_mode=shift_one") -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    module = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy)
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(dist.get_rank())  # every rank trains on data of its own
    for _ in range(100):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        (model(inputs) - inputs @ goal).square().mean().backward()
        optimizer.step()
    model.flush()  # all ranks have the same weights now
    loss = (module.weight.detach().T - goal).square().mean()
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
