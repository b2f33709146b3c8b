"""A script for Bagua, untouched: python -m tutti.compat -m bagua.distributed.launch --nproc_per_node=2 old_bagua.py"""

import torch
import torch.distributed as dist
from bagua.torch_api import get_rank, get_world_size, init_process_group
from bagua.torch_api.algorithms.bytegrad import ByteGradAlgorithm


def main():
    init_process_group()
    torch.manual_seed(1)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model = model.with_bagua([optimizer], ByteGradAlgorithm())
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(get_rank())  # every rank trains on data of its own
    for _ in range(100):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs @ goal).square().mean()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.AVG)
    if get_rank() == 0:
        print(f"loss {loss:.6f} on {get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
