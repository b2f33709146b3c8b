"""Programs for the tests of launchers, and what every test of a launcher does with them."""

import contextlib
import os
import signal
import subprocess
import sys
import time

PYTHON = sys.executable
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
LIMIT = 120  # seconds

# What a user writes to be startable by every launcher. The line is written at once, since ranks share the output.
SUM = """
import os, torch, torch.distributed as dist
import tutti.torch
torch.set_num_threads(1)
dist.init_process_group("tutti", init_method="tutti://")
dist.all_reduce(tensor := torch.tensor([1.0 + dist.get_rank()]))
os.write(1, f"<rank {dist.get_rank()} of {dist.get_world_size()} sum {tensor[0]:.0f}>\\n".encode())
dist.destroy_process_group()
"""


def write(directory, text, name="script.py"):
    path = directory / name
    path.write_text(text)
    return str(path)


def environment(**more):
    """This process's environment without what a launcher may have left in it."""
    prefixes = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "TORCHELASTIC_", "HOROVOD_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes) and name not in names}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def run(command, expected=0, **more):
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=environment(**more), start_new_session=True)
    try:
        printed, errors = process.communicate(timeout=LIMIT)
    finally:  # a launcher that is killed at the limit leaves its ranks
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode == 0) == (expected == 0), f"{command}\n{printed}\n{errors}"
    return subprocess.CompletedProcess(command, process.returncode, printed, errors)


def wait_for(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT} s: {what}"
        time.sleep(0.02)


def check_sums(text, size):
    total = size * (size + 1) // 2
    assert sorted(line for line in text.split("\n") if line.startswith("<")) == [
        f"<rank {rank} of {size} sum {total}>" for rank in range(size)
    ], text
