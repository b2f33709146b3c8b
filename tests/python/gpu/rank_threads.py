"""Runs a function on several ranks, each a thread of this process with a GPU of its own: the fake NCCL is of one process."""

import gc
import threading
import traceback

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg

multi_threaded_pg.ThreadLocalWorld.comms = []  # destroy_process_group looks at them, and torch's class has none


def _run(function, rank, size, backend, store, values, errors, all_have_ended):
    try:
        gpu = torch.device("cuda", rank)
        torch.cuda.set_device(gpu)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, device_id=gpu)
        values[rank] = function(rank, gpu)
    except BaseException:
        errors.append(f"rank {rank}:\n{traceback.format_exc()}")
        all_have_ended.abort()
    try:
        all_have_ended.wait(60)
        dist.destroy_process_group()
    except threading.BrokenBarrierError:
        pass  # another rank has failed


def run_ranks(size, function, backend):
    """Returns what `function(rank, gpu)` returned on each rank."""
    # A rank must not collect what another rank has left: cudaFree waits for that rank's GPU, which may wait for this rank.
    gc.collect()
    gc.disable()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    multi_threaded_pg._install_threaded_pg()
    try:
        values, errors, all_have_ended = [None] * size, [], threading.Barrier(size)
        store = dist.HashStore()
        ranks = [threading.Thread(target=_run, args=(function, rank, size, backend, store, values, errors, all_have_ended))
                 for rank in range(size)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(120)
        assert not errors, "\n".join(errors)
        assert not any(rank.is_alive() for rank in ranks), "a rank did not end"
    finally:
        gc.enable()
        multi_threaded_pg._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
    return values
