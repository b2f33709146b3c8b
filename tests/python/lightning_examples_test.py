"""The examples of docs/examples/lightning, run as their first lines say."""

import re
import sys

import pytest

from examples_test import EXAMPLES
from launchers import run

ALGORITHMS = ["gradient_allreduce", "bytegrad", "decentralized", "low_precision_decentralized", "qadam", "async"]
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]


@pytest.mark.parametrize("example, ranks", [
    ("any_strategy.py", 2), ("any_strategy.py ddp_sharded", 2), ("any_strategy.py tutti_spawn:decentralized", 2),
    ("ddp.py", 2), ("step_end.py dp", 1), ("step_end.py ddp2", 1), *((f"bagua_strategy.py {name}", 2) for name in ALGORITHMS)
])
def test_example(example, ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Lightning writes checkpoints where it runs
    name, *arguments = example.split()
    check(run([sys.executable, EXAMPLES / "lightning" / name, *arguments]).stdout, ranks)


def test_horovod(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(run([*MPIRUN, sys.executable, EXAMPLES / "lightning" / "horovod_strategy.py"]).stdout, 2)


def check(text, ranks):
    found = re.search(r"validation loss ([0-9.]+) on (\d+) ranks", text)
    assert found and float(found[1]) < 0.05 and int(found[2]) == ranks, text
