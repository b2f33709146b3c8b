"""The first steps try how gradients travel fastest: torchrun --nproc-per-node 2 autotune.py"""

import torch
import torch.distributed as dist

import tutti.torch


def main() -> None:
    dist.init_process_group("tutti")
    torch.manual_seed(1)
    module = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    model = tutti.torch.DistributedDataParallel(module, optimizer, bucket_cap_mb=0.0625, autotune=True)
    inputs = torch.randn(16, 256)
    for _ in range(model.tuning["most_backwards"] + 1):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    tuning = model.tuning
    if dist.get_rank() == 0:
        print(f"{tuning['state']}: {len(tuning['trials'])} trials in {tuning['backwards']} steps, "
              f"bucket_bytes={tuning['choice']['bucket_bytes']} saves {tuning['gain']:.0%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
