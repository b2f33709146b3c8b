"""Training that goes on from its checkpoint: torchrun --nproc-per-node 2 checkpoint.py FOLDER

The same command trains 100 steps more each time, also with another number of ranks. The second argument may be another
strategy than low_precision_decentralized, the same one every time.
"""

import pathlib
import sys

import torch
import torch.distributed as dist

import tutti.torch


def save(folder: pathlib.Path, model: tutti.torch.DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    """Every rank writes a file of its own, since replicas and residuals differ; the checkpoint counts when all are there."""
    model.flush()  # the ranks agree on their weights: only then another number of ranks can go on from them
    name = f"step{model.step}"
    (folder / name).mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / name / f"rank{dist.get_rank()}.pt")
    dist.barrier()
    if dist.get_rank() == 0:
        (folder / "latest.new").write_text(f"{name} {dist.get_world_size()}")
        (folder / "latest.new").rename(folder / "latest")


def load(folder: pathlib.Path, model: tutti.torch.DistributedDataParallel, optimizer: torch.optim.Optimizer) -> None:
    if not (folder / "latest").exists():
        return
    name, size = (folder / "latest").read_text().split()
    states = [torch.load(folder / name / f"rank{rank}.pt") for rank in range(int(size))]
    same_world = int(size) == dist.get_world_size()
    optimizer.load_state_dict(states[dist.get_rank() if same_world else 0]["optimizer"])
    model.load_state_dict([state["model"] for state in states])  # collective, and after the optimizer


def main(folder: str, strategy: str = "low_precision_decentralized") -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    module = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.5)
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy)
    load(pathlib.Path(folder), model, optimizer)
    goal = torch.arange(10.0).view(10, 1) / 10
    torch.manual_seed(1000 * model.step + dist.get_rank())  # new data for every rank, and after every start
    for _ in range(100):
        inputs = torch.randn(16, 10)
        optimizer.zero_grad()
        (model(inputs) - inputs @ goal).square().mean().backward()
        optimizer.step()
    save(pathlib.Path(folder), model, optimizer)
    loss = (module.weight.detach().T - goal).square().mean()
    if dist.get_rank() == 0:
        print(f"loss {loss:.6f} on {dist.get_world_size()} ranks after {model.step} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
