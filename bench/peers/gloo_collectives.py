"""A collective of torch.distributed's gloo, f32, sum, root 0, timed like mpi_collectives.c.

    gloo_collectives.py RANKS COLLECTIVE SECONDS [--rewrite] BYTES...        (run by the Python that has torch)

Starts its own local ranks, except where GLOO_BENCH_RANK says that the process is one of them, and GLOO_BENCH_STORE
names the file in which ranks find each other; GLOO_SOCKET_IFNAME is the interface. COLLECTIVE and BYTES mean what they
mean to `tutti bench`: BYTES is the larger of a rank's input and output. Prints one JSON row for each size. The time of
a call is the maximum over the ranks; SECONDS bounds the timed calls of one size. With --rewrite every rank rewrites its
whole input before each call, untimed, with a barrier between.
"""

import contextlib
import json
import mmap
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))
from links import run_ranks

LIMIT_S = 3600  # ends ranks that nobody else ends; peers.py waits for less
WARM_UPS = 5
MIN_CALLS = 5
MAX_CALLS = 20000
PERIOD = 4093  # prime
RANK_STEP = 64
LARGE_PAGE = 2 << 20  # bytes
SPLITS_INPUT = {"reduce_scatter", "scatter", "all_to_all", "all_to_all_v"}
SPLITS_OUTPUT = {"all_gather", "gather", "all_to_all", "all_to_all_v"}
IN_PLACE = {"all_reduce", "broadcast", "reduce"}  # gloo has no other form of them
OUTPUT_AT_ROOT = {"reduce", "gather"}
SUMS = {"all_reduce", "reduce_scatter", "reduce"}


def exchange(dist, data, out, rank, size):
    """Sends to the next rank, and receives from the rank before.

    The receive is first: after a send, gloo would take turns, and two hosts would use half of the wire.
    """
    arrived, sent = dist.irecv(out, (rank - 1) % size), dist.isend(data, (rank + 1) % size)
    arrived.wait()
    sent.wait()


def p99(times):
    """The 99th percentile of sorted times, as in `tutti bench`: the smallest one that at least 99 % do not exceed."""
    return times[-(-99 * len(times) // 100) - 1]


def call_of(dist, collective, data, out, rank, size):
    """A function without arguments that makes one call from `data` to `out`."""
    blocks = list((data if collective == "scatter" else out).chunk(size))
    at_root = blocks if rank == 0 else None
    split = [len(data) // size] * size
    return {
        "all_reduce": lambda: dist.all_reduce(out),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(out, data),
        "all_gather": lambda: dist.all_gather_into_tensor(out, data),
        "broadcast": lambda: dist.broadcast(out, 0),
        "reduce": lambda: dist.reduce(out, 0),
        "gather": lambda: dist.gather(data, at_root, 0),
        "scatter": lambda: dist.scatter(out, at_root, 0),
        "all_to_all": lambda: dist.all_to_all_single(out, data),
        "all_to_all_v": lambda: dist.all_to_all_single(out, data, split, split),
        "send_recv": lambda: exchange(dist, data, out, rank, size),
    }[collective]


def zeros(torch, count, on_large_pages):
    """A tensor of zeros, perhaps on large pages where the kernel has them, as those of mpi_collectives.c are."""
    if not on_large_pages:
        return torch.zeros(count)
    memory = mmap.mmap(-1, 4 * count + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # of a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.float32)
    first = -whole.data_ptr() % LARGE_PAGE // 4
    return whole[first:first + count]


class Measurement:
    """The buffers and the call of one size."""

    def __init__(self, torch, dist, collective, rank, size, nbytes, rewrite):
        self.torch, self.dist, self.collective, self.rank, self.size = torch, dist, collective, rank, size
        self.rewrite = rewrite
        blocks = size if collective in SPLITS_INPUT | SPLITS_OUTPUT else 1
        self.count = max(1, nbytes // 4 // blocks)
        self.bytes = self.count * blocks * 4
        large = self.bytes >= LARGE_PAGE
        self.out = zeros(torch, self.count * (size if collective in SPLITS_OUTPUT else 1), large)
        self.data = self.out
        if collective not in IN_PLACE:
            self.data = zeros(torch, self.count * (size if collective in SPLITS_INPUT else 1), large)
        self.pattern = self.input_of(rank)
        self.call = call_of(dist, collective, self.data, self.out, rank, size)

    def input_of(self, rank):
        """Small integers, so that sums are exact in any order."""
        numbers = self.torch.arange(len(self.data), dtype=self.torch.int32)
        return numbers.remainder_(PERIOD).add_(RANK_STEP * rank).float()

    def expected(self):
        """What the output of this rank has to be."""
        own = slice(self.rank * self.count, (self.rank + 1) * self.count)
        if self.collective in SUMS:
            total = self.input_of(0)
            for rank in range(1, self.size):  # 8 ranks have no room for all inputs of 256 MB at once
                total += self.input_of(rank)
            return total[own] if self.collective == "reduce_scatter" else total
        inputs = [self.input_of(rank) for rank in range(self.size)]
        if self.collective in ("all_to_all", "all_to_all_v"):
            return self.torch.cat([data[own] for data in inputs])
        if self.collective in ("all_gather", "gather"):
            return self.torch.cat(inputs)
        if self.collective == "send_recv":
            return inputs[self.rank - 1]
        return inputs[0][own] if self.collective == "scatter" else inputs[0]

    def count_wrong(self):
        """Elements, of all ranks, that a call gets wrong."""
        self.out.fill_(-1)
        self.data.copy_(self.pattern)
        self.call()
        has_output = self.rank == 0 or self.collective not in OUTPUT_AT_ROOT
        wrong = (self.out != self.expected()).sum() if has_output else self.torch.tensor(0)
        self.dist.all_reduce(wrong)
        return int(wrong)

    def timed_call(self):
        if self.rewrite:
            self.data.copy_(self.pattern)
            self.dist.barrier()
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def slowest(self, times):
        """The maximum over the ranks, element by element."""
        times = self.torch.tensor(times, dtype=self.torch.float64)
        self.dist.all_reduce(times, op=self.dist.ReduceOp.MAX)
        return times.tolist()

    def time_of_batch(self, calls):
        return self.slowest([sum(self.timed_call() for _ in range(calls))])[0]

    def warm_up(self, seconds):
        """Makes the warm-up calls, as mpi_collectives.c does; returns the number of calls that fit into `seconds`."""
        batch = WARM_UPS
        time_s = self.time_of_batch(batch)
        while time_s < seconds / 10 and batch < MAX_CALLS:
            batch *= 2
            time_s = self.time_of_batch(batch)
        return max(MIN_CALLS, min(MAX_CALLS, int(seconds / time_s * batch)))

    def row(self, seconds):
        wrong = self.count_wrong()
        calls = self.warm_up(seconds)
        self.data.zero_()  # repeated sums in place of values other than 0 would grow to infinity
        self.dist.barrier()
        own = [self.timed_call() for _ in range(calls)]
        mean = 1e6 * self.slowest([sum(own)])[0] / calls
        times = sorted(1e6 * time_s for time_s in self.slowest(own))
        wrong += self.count_wrong()
        return {"library": "gloo", "version": "torch " + self.torch.__version__, "transport": "tcp",
                "ranks": self.size, "bytes": self.bytes, "time_us": round(mean, 3), "p50_us": round(statistics.median(times), 3),
                "p99_us": round(p99(times), 3), "max_us": round(times[-1], 3),
                "calls": len(times), "wrong": wrong, "large_pages": True}


def run_rank(rank, size, store, collective, seconds, rewrite, sizes):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    for nbytes in sizes:
        row = Measurement(torch, dist, collective, rank, size, nbytes, rewrite).row(seconds)
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def main(arguments):
    rewrite = "--rewrite" in arguments
    size, collective, seconds, *sizes = [a for a in arguments if a != "--rewrite"]
    if "GLOO_BENCH_RANK" in os.environ:
        rank, store = int(os.environ["GLOO_BENCH_RANK"]), os.environ["GLOO_BENCH_STORE"]
        return run_rank(rank, int(size), store, collective, float(seconds), rewrite, [int(b) for b in sizes])
    with tempfile.TemporaryDirectory() as folder:
        run_ranks([[sys.executable, *sys.argv]] * int(size), [{
            **os.environ, "GLOO_BENCH_RANK": str(rank), "GLOO_BENCH_STORE": folder + "/store",
            "GLOO_SOCKET_IFNAME": "lo"} for rank in range(int(size))], LIMIT_S)


if __name__ == "__main__":
    main(sys.argv[1:])
