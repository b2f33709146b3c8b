"""Runs a function on several ranks, each a forked process with a default process group on the backend `tutti`."""

import contextlib
import datetime
import fcntl
import multiprocessing
import os
import queue
import socket
import struct
import tempfile
import time
import traceback

import pytest
import torch
import torch._dynamo  # optimizers import it in their first step: here once for all forked ranks
import torch.distributed as dist

import tutti.torch

_context = multiprocessing.get_context("fork")


def _run(function, rank, size, store, backend, timeout, prepare, results, arguments):
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=size,
            timeout=None if timeout is None else datetime.timedelta(seconds=timeout), **(prepare(rank) if prepare else {}))
        value = function(rank, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, value, None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
        results.close()
        results.join_thread()
        os._exit(1)


def _results_of(ranks, results, end, may_die):
    """The value or the error that each rank has reported, as two dictionaries by rank."""
    values = {}
    errors = {}
    while len(values) + len(errors) < len(ranks):
        try:
            rank, value, error = results.get(timeout=0.2)
            if error is None:
                values[rank] = value
            else:
                errors[rank] = error
        except queue.Empty:
            assert time.monotonic() < end, f"ranks {set(range(len(ranks))) - set(values)} did not end; {errors}"
            gone = [r for r, p in enumerate(ranks) if not p.is_alive() and r not in values and r not in errors]
            for rank in gone:
                if results.empty():
                    values[rank] = None
                    assert rank in may_die, f"rank {rank} ended with {ranks[rank].exitcode}; {errors}"
    return values, errors


def _check_ends(ranks, end, may_die):
    """Waits for the ranks, all of which have reported: a rank that hangs or crashes afterwards is a failure, too."""
    for rank, process in enumerate(ranks):
        process.join(max(0, end - time.monotonic()))
        assert not process.is_alive(), f"rank {rank} has reported its result, and did not end"
        assert process.exitcode == 0 or rank in may_die, (
            f"rank {rank} has reported its result, and ended with {process.exitcode} afterwards")


def _network_interface():
    """A network interface of this machine that has an address other machines can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no address
                address = fcntl.ioctl(asks, 0x8915, struct.pack("256s", name.encode()))[20:24]  # SIOCGIFADDR
                if address[0] != 127:
                    return name
    pytest.skip("this machine has no network interface but loopback, which does not join nodes")


def on_two_nodes():
    """`prepare` of run_ranks: ranks 0 and 1 have the name of one node, ranks 2 and 3 that of another."""
    interface = _network_interface()

    def prepare(rank):
        os.environ.update(TUTTI_NODE=f"node{rank // 2}", GLOO_SOCKET_IFNAME=interface)
        return {}

    return prepare


def run_ranks(size, function, *arguments, backend="tutti", timeout=30, limit=90, may_die=(),
              prepare=None):
    """Returns what `function(rank, *arguments)` returned on each rank; None for ranks of `may_die` that ended without.

    `timeout` is the process group's (None: none is named), `limit` that of the whole run, both in seconds. `prepare(rank)`
    is called before the process group is made, and returns more arguments of init_process_group.
    """
    with tempfile.TemporaryDirectory() as directory:
        results = _context.Queue()
        ranks = [
            _context.Process(
                target=_run,
                args=(function, rank, size, os.path.join(directory, "store"), backend, timeout, prepare, results,
                      arguments))
            for rank in range(size)
        ]
        for process in ranks:
            process.start()
        end = time.monotonic() + limit
        try:
            values, errors = _results_of(ranks, results, end, may_die)
            assert not errors, "\n".join(f"rank {rank}:\n{error}" for rank, error in sorted(errors.items()))
            _check_ends(ranks, end, may_die)
        finally:
            for process in ranks:
                process.kill()
                process.join()
        return [values[rank] for rank in range(size)]
