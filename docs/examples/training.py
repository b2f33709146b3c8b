"""A training loop with what real ones have: torchrun --nproc-per-node 2 training.py FOLDER [STRATEGY]

Small batches that are accumulated, a head that not every step uses, BatchNorm, ranks with unequal data, an evaluation,
and a checkpoint from which the next run goes on, with the same strategy or another one.
"""

import contextlib
import pathlib
import sys

import torch
import torch.distributed as dist

import tutti.torch

BATCH = 16
PARTS = 4  # small batches that make one step


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU())
        self.sum = torch.nn.Linear(32, 1)
        self.maximum = torch.nn.Linear(32, 1)

    def loss(self, inputs: torch.Tensor, with_maximum: bool) -> torch.Tensor:
        features = self.body(inputs)
        loss = (self.sum(features) - inputs.sum(1, keepdim=True)).square().mean()
        if with_maximum:
            loss = loss + (self.maximum(features) - inputs.amax(1, keepdim=True)).square().mean()
        return loss

    forward = loss


def main(folder: str, strategy: str = "gradient_allreduce") -> None:
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)

    # [resume]
    checkpoint = pathlib.Path(folder) / "checkpoint.pt"
    if checkpoint.exists():  # saved by any strategy; rank 0 alone may have the file
        saved = torch.load(checkpoint)
        net.load_state_dict(saved["net"])  # before `net` is wrapped
        optimizer.load_state_dict(saved["optimizer"])
    model = tutti.torch.DistributedDataParallel(net, optimizer, strategy, find_unused_parameters=True)
    model.broadcast_optimizer(optimizer)  # all ranks have the weights of rank 0 now, and the state of its optimizer
    # [resume]

    torch.manual_seed(1000 + rank)
    data = torch.randn(6000 + 500 * rank, 10)  # every rank has rows of its own, and not equally many

    # [steps]
    steps = torch.tensor(len(data) // (BATCH * PARTS))
    dist.all_reduce(steps, op=dist.ReduceOp.MIN)  # as many as the rank with the fewest rows can make
    # [steps]
    for step in range(int(steps)):
        parts = data[step * BATCH * PARTS :][: BATCH * PARTS].split(BATCH)
        # [accumulate]
        optimizer.zero_grad()
        for part in parts:
            with contextlib.nullcontext() if part is parts[-1] else model.no_sync():
                loss = model(part, with_maximum=(step + rank) % 3 == 0)
                (loss / len(parts)).backward()
        optimizer.step()
        # [accumulate]

    # [share]
    exchanged = model.take_statistics()  # since the last call
    if rank == 0:
        waited, engine, waiting = (
            1000 * exchanged[key] / exchanged["steps"]
            for key in ("exposed_seconds", "engine_cpu_seconds", "engine_waiting_seconds")
        )
        print(f"ms of a step: waited {waited:.3f}, engine {engine:.3f}, of these waiting {waiting:.3f}")
    # [share]

    # [evaluate]
    model.flush()  # all ranks have the same weights and the same statistics of BatchNorm now
    model.check_replicas()  # raises otherwise
    net.eval()
    with torch.no_grad():
        total = torch.tensor([net.loss(data, with_maximum=False) * len(data), len(data)])
    dist.all_reduce(total)  # a sum, because ranks have unequal shares
    net.train()
    # [evaluate]
    # [save]
    if rank == 0:  # after flush() the weights of one rank are those of all
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
        print(f"loss {total[0] / total[1]:.6f} on {dist.get_world_size()} ranks")
    # [save]
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
