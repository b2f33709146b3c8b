"""A script for Horovod, untouched: python -m tutti.compat horovodrun -np 2 python old_horovod.py"""

import horovod.torch as hvd
import torch


def main():
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(hvd.rank())  # every rank trains on data of its own
    for _ in range(100):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs @ goal).square().mean()
        loss.backward()
        optimizer.step()
    loss = hvd.allreduce(loss.detach())
    if hvd.rank() == 0:
        print(f"loss {loss:.6f} on {hvd.size()} ranks")
    hvd.shutdown()


if __name__ == "__main__":
    main()
