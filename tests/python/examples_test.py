"""The examples of the docs, run as their first lines say."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize("example, loss", [
    ("ddp.py", 0.01), ("fsdp2.py", 0.2), ("bytegrad_ddp.py", 0.01), ("decentralized.py", 0.01),
    ("decentralized.py low_precision_decentralized", 0.01), ("decentralized.py bytegrad", 0.01), ("qadam.py", 0.01),
    ("async.py", 0.01)
])
def test_example(example, loss):
    name, *arguments = example.split()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLES / name]
    run = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    words = run.stdout.split()
    assert words[0] == "loss" and float(words[1]) < loss and words[2:] == ["on", "2", "ranks"], run.stdout
