"""torch.distributed's gloo all_reduce, f32, sum, in place, timed like mpi_collectives.c; starts its own local ranks.

    gloo_all_reduce.py RANKS SECONDS [--rewrite] BYTES...        (run by the Python that has torch)

Prints one JSON row for each size. The time of a call is the maximum over the ranks; SECONDS bounds the timed calls of
one size. With --rewrite every rank rewrites its whole buffer before each call, untimed, with a barrier between.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UPS = 5
MIN_CALLS = 5
MAX_CALLS = 5000


def timed_call(dist, data, rewrite_as):
    if rewrite_as is not None:
        data.fill_(rewrite_as)
        dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(data)
    return time.perf_counter() - start


def time_of_batch(torch, dist, data, rewrite_as, calls):
    """Seconds that `calls` calls take together, the maximum over the ranks."""
    time_s = torch.tensor([sum(timed_call(dist, data, rewrite_as) for _ in range(calls))], dtype=torch.float64)
    dist.all_reduce(time_s, op=dist.ReduceOp.MAX)
    return float(time_s)


def warm_up(torch, dist, data, rewrite_as, seconds):
    """Makes the warm-up calls, as mpi_collectives.c does; returns the number of calls that fit into `seconds`."""
    batch = WARM_UPS
    time_s = time_of_batch(torch, dist, data, rewrite_as, batch)
    while time_s < seconds / 10:
        batch *= 2
        time_s = time_of_batch(torch, dist, data, rewrite_as, batch)
    return max(MIN_CALLS, min(MAX_CALLS, int(seconds / time_s * batch)))


def measure(torch, dist, rank, size, nbytes, seconds, rewrite):
    data = torch.zeros(nbytes // 4)
    rewrite_as = float(rank + 1) if rewrite else None
    calls = warm_up(torch, dist, data, rewrite_as, seconds)

    data.fill_(float(rank + 1))
    dist.all_reduce(data)
    wrong = (data != size * (size + 1) / 2).sum()
    dist.all_reduce(wrong)

    data.zero_()  # repeated sums of values other than 0 would grow to infinity
    times = torch.tensor([timed_call(dist, data, rewrite_as) for _ in range(calls)], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    times = sorted((times * 1e6).tolist())
    return {"library": "gloo", "version": "torch " + torch.__version__, "transport": "tcp", "ranks": size,
            "bytes": nbytes, "p50_us": round(statistics.median_high(times), 3),
            "p99_us": round(times[int(len(times) * 0.99)], 3), "max_us": round(times[-1], 3),
            "calls": len(times), "wrong": int(wrong)}


def run_rank(rank, size, store, seconds, rewrite, sizes):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    for nbytes in sizes:
        row = measure(torch, dist, rank, size, nbytes, seconds, rewrite)
        if rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()


def main(arguments):
    rewrite = "--rewrite" in arguments
    numbers = [a for a in arguments if a != "--rewrite"]
    size, seconds, sizes = int(numbers[0]), float(numbers[1]), [int(b) for b in numbers[2:]]
    if "GLOO_BENCH_RANK" in os.environ:
        rank, store = int(os.environ["GLOO_BENCH_RANK"]), os.environ["GLOO_BENCH_STORE"]
        return run_rank(rank, size, store, seconds, rewrite, sizes)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env={
            **os.environ, "GLOO_BENCH_RANK": str(rank), "GLOO_BENCH_STORE": folder + "/store",
            "GLOO_SOCKET_IFNAME": "lo"}) for rank in range(size)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
