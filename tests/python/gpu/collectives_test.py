"""Collectives of torch.distributed over the backend, on several ranks, whose tensors are on GPUs."""

import pytest
import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  registers the backend
from gpus import run_ranks

SIZE = 2
COUNT = 1000  # elements for each rank


def full(value, gpu, count=COUNT, dtype=torch.float32):
    return torch.full([count], value, device=gpu, dtype=dtype)


def all_reduce(rank, gpu):
    total, most, half = full(rank + 1, gpu), full(rank, gpu), full(rank + 0.5, gpu, dtype=torch.bfloat16)
    dist.all_reduce(total)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    dist.all_reduce(half)
    return total, most, half


def broadcast(rank, gpu):
    tensor = full(rank + 7, gpu)
    dist.broadcast(tensor, src=1)
    return tensor


def all_gather(rank, gpu):
    listed = [full(-1, gpu) for _ in range(SIZE)]
    dist.all_gather(listed, full(rank, gpu))
    whole = full(-1, gpu, SIZE * COUNT)
    dist.all_gather_into_tensor(whole, full(rank, gpu))
    return whole, torch.cat(listed)


def reduce_scatter(rank, gpu):
    mine = full(-1, gpu)
    dist.reduce_scatter_tensor(mine, torch.cat([full(10 * chunk + rank, gpu) for chunk in range(SIZE)]))
    return mine


def all_to_all(rank, gpu):
    taken = full(-1, gpu, SIZE * COUNT)
    dist.all_to_all_single(taken, torch.cat([full(10 * rank + peer, gpu) for peer in range(SIZE)]))
    return taken


def messages(rank, gpu):
    taken = full(-1, gpu)
    if rank == 0:
        dist.send(full(5, gpu), dst=1)
        dist.recv(taken, src=1)
    else:
        dist.recv(taken, src=0)
        dist.send(taken + 1, dst=0)
    return taken


def chunks(*values):
    return torch.cat([torch.full([COUNT], float(value)) for value in values])


@pytest.mark.parametrize("collective, expected", [
    (broadcast, [chunks(8), chunks(8)]),
    (reduce_scatter, [chunks(1), chunks(21)]),
    (all_to_all, [chunks(0, 10), chunks(1, 11)]),
    (messages, [chunks(6), chunks(5)]),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_collective(collective, expected):
    found = run_ranks(SIZE, lambda rank, gpu: collective(rank, gpu).cpu())
    assert all(map(torch.equal, found, expected)), found


@pytest.mark.parametrize("backend", ["tutti", "cuda:tutti", "cpu:tutti,cuda:tutti"])
def test_a_backend_for_devices(backend):
    def on_a_rank(rank, gpu):
        dist.barrier()
        return [tensor.cpu() for tensor in all_reduce(rank, gpu)]

    for total, most, half in run_ranks(SIZE, on_a_rank, backend):
        assert torch.equal(total, chunks(3)) and torch.equal(most, chunks(1))
        assert half.dtype == torch.bfloat16 and torch.equal(half.float(), chunks(2))


def test_all_gather():
    for whole, listed in run_ranks(SIZE, lambda rank, gpu: [tensor.cpu() for tensor in all_gather(rank, gpu)]):
        assert torch.equal(whole, chunks(0, 1)) and torch.equal(listed, whole)


def test_tensors_of_the_host_beside_those_of_the_gpu():
    def on_a_rank(rank, gpu):
        on_host, on_gpu = torch.full([3], rank + 1.0), full(rank + 1, gpu, 3)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (on_host, on_gpu)]
        for work in works:
            work.wait()
        return on_host.tolist(), on_gpu.tolist()

    assert run_ranks(SIZE, on_a_rank, "cpu:tutti,cuda:tutti") == [([3] * 3, [3] * 3)] * SIZE


def test_a_result_is_read_on_another_stream():
    """Tensors are written on one stream, exchanged, and read on a second one, with events alone between these three."""
    def on_a_rank(rank, gpu):
        writes, reads = (torch.cuda.Stream(gpu) for _ in range(2))
        sums = []
        for step in range(20):
            with torch.cuda.stream(writes):
                tensor = full(rank + step, gpu, 100 * COUNT)
                work = dist.all_reduce(tensor, async_op=True)
            with torch.cuda.stream(reads):
                work.wait()
                sums.append(tensor.sum())
                tensor.record_stream(reads)
        reads.synchronize()
        return [float(one) for one in sums]

    expected = [100.0 * COUNT * (2 * step + 1) for step in range(20)]
    assert run_ranks(SIZE, on_a_rank) == [expected] * SIZE
