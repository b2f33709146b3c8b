"""What the host does for Tutti while a real GPU trains: it waits for nothing, and takes no memory of the GPU."""

import collections

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from gpus import run_ranks

WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
         "cuEventSynchronize", "cuCtxSynchronize")
ALLOCATIONS = ("cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaMallocHost", "cudaHostAlloc",
               "cudaFreeHost", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemCreate", "cuMemHostAlloc")
STEPS, WARM_UP = 10, 5
SECOND_OF_CYCLES = 2_000_000_000


def calls_of(train):
    """How often the host calls each function of CUDA in some steps, after others."""
    for _ in range(WARM_UP):
        train()
    torch.cuda.synchronize()
    activities = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as trace:
        for _ in range(STEPS):
            train()
    return collections.Counter(event.name for event in trace.events() if event.name.startswith("cu"))


def steps(module, model, optimizer, gpu):
    inputs = torch.randn(64, 512, device=gpu)

    def train():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return train


def layers(gpu):
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).to(gpu)  # 8 MB


def calls_with(strategy, gpu):
    """The calls of training with Tutti, and those of the same training without it."""
    torch.manual_seed(1)
    module = layers(gpu)
    kind = tutti.torch.QAdam if strategy.startswith("qadam") else torch.optim.SGD
    optimizer = kind(module.parameters(), lr=0.01)
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy, bucket_cap_mb=1)
    with_tutti = calls_of(steps(module, model, optimizer, gpu))
    alone = layers(gpu)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.01)
    without = calls_of(steps(alone, alone, optimizer, gpu))
    return with_tutti, without


@pytest.mark.parametrize("strategy, size", [
    ("gradient_allreduce", 1), ("gradient_allreduce", 2), ("gradient_allreduce:codec=bf16", 2), ("bytegrad", 2),
    ("decentralized", 2), ("low_precision_decentralized", 2), ("qadam:warmup_steps=2", 2)])
def test_the_host_waits_for_nothing_and_takes_no_memory(strategy, size, capsys):
    for rank, (with_tutti, without) in enumerate(run_ranks(size, lambda rank, gpu: calls_with(strategy, gpu))):
        with capsys.disabled():
            print(f"\nrank {rank} of {size}, {strategy}: with Tutti {dict(with_tutti)}, without {dict(without)}")
        assert sum(count for name, count in with_tutti.items() if "Launch" in name) > STEPS, "calls are not in the trace"
        more = {name: with_tutti[name] - without[name] for name in (*WAITS, *ALLOCATIONS)
                if with_tutti[name] > without[name]}
        assert not more, f"rank {rank} of {size}: more calls than torch alone in {STEPS} steps: {more}"


def test_a_call_returns_before_the_gpu_has_come_to_it():
    def on_a_rank(rank, gpu):
        tensor = torch.full([1 << 20], rank + 1.0, device=gpu)
        dist.all_reduce(tensor)  # makes what the first call makes
        torch.cuda.synchronize()
        torch.cuda._sleep(SECOND_OF_CYCLES)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        total = tensor.sum()
        has_ended = torch.cuda.current_stream().query()
        return has_ended, float(total)

    assert run_ranks(2, on_a_rank) == [(False, 6.0 * (1 << 20))] * 2
