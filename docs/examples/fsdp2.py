"""FSDP2 on the backend `tutti`, its collectives in memory that needs no copies: torchrun --nproc-per-node 2 fsdp2.py"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import tutti.torch  # registers the backend; from torch 2.14 on torch finds it by itself


def main():
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
        layer.set_allocate_memory_from_process_group_for_comm(True)  # takes the collectives' memory from the backend
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(dist.get_rank())  # every rank trains on data of its own
    for _ in range(200):
        inputs = torch.randn(32, 10)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True).tanh()).square().mean()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss := loss.detach(), op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"loss {loss:.3f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
