"""torch's flight recorder, which from torch 2.14 on records the calls of every backend."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

c10d = torch._C._distributed_c10d
pytestmark = pytest.mark.skipif(not hasattr(c10d, "FlightRecorderHook"),
                                reason=f"torch {torch.__version__} records the calls of nccl and gloo alone")


def states():
    entries = json.loads(c10d._dump_fr_trace_json(backend="tutti"))["entries"]
    return [(entry["profiling_name"], entry["state"]) for entry in entries]


def calls_are_recorded(rank):
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(4, 3).t())  # this tensor is not contiguous: the result is copied back into it
    dist.all_gather([torch.empty(2) for _ in range(2)], torch.ones(2))
    works = [dist.all_reduce(torch.ones(3), async_op=True), dist.all_reduce(torch.ones(3), async_op=True)]
    assert [state for _, state in states()[:3]] == ["completed"] * 3, states()
    works[0].wait()
    works[1].get_future().wait()
    dist.barrier()
    assert {state for _, state in states()} == {"completed"}, states()
    assert states()[0][0] == "tutti:all_reduce" and len(states()) == 6, states()
    dist.all_reduce(torch.ones(3), group=dist.new_group())
    assert len(states()) == 7 and states()[-1][1] == "completed", states()


def test_calls_are_recorded():
    run_ranks(2, calls_are_recorded)


def one_rank_does_not_call(rank, folder):
    """Rank 0 waits for rank 1, which waits for a message; both hear of it by an error."""
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(folder, "record_")
    dist.all_reduce(torch.ones(3))
    with pytest.raises(dist.DistBackendError):
        if rank == 0:
            dist.all_reduce(torch.ones(5))
        else:
            dist.recv(torch.ones(1), 0)


def test_a_hang_is_written_down_and_torchs_analyzer_reads_it(tmp_path):
    run_ranks(2, one_rank_does_not_call, str(tmp_path), timeout=8)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["record_0", "record_1"]
    analyzer = pathlib.Path(sys.executable).with_name("torchfrtrace")
    ended = subprocess.run([str(analyzer), str(tmp_path), "--prefix", "record_"], capture_output=True, text=True,
                           timeout=120)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "tutti:all_reduce" in said, said

