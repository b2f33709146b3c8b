"""The examples of docs/examples/lightning. How Lightning starts ranks is tested by lightning_launch_test.py."""

import re

import pytest

import forked_python
from examples_test import EXAMPLES
from launchers import PYTHON, run

forked_python.import_once("torch._dynamo", "lightning.pytorch", "tutti.lightning")

ALGORITHMS = ["gradient_allreduce", "bytegrad", "decentralized", "low_precision_decentralized", "qadam", "async"]
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Lightning writes checkpoints where it runs


def words_of(example):
    name, *arguments = example.split()
    return [EXAMPLES / "lightning" / name, *arguments]


def check(text, ranks):
    found = re.search(r"validation loss ([0-9.]+) on (\d+) ranks", text)
    assert found and float(found[1]) < 0.05 and int(found[2]) == ranks, text


def test_as_its_first_line_says():
    check(run([PYTHON, *words_of("ddp.py")]).stdout, 2)


def test_horovod_as_its_first_line_says():
    check(run([*MPIRUN, PYTHON, *words_of("horovod_strategy.py")]).stdout, 2)


@pytest.mark.parametrize("example", ["any_strategy.py", "any_strategy.py ddp_sharded",
                                     *(f"bagua_strategy.py {algorithm}" for algorithm in ALGORITHMS)])
def test_example(example):
    check(forked_python.run_on_ranks(2, words_of(example)).stdout, 2)


@pytest.mark.parametrize("example, ranks", [("any_strategy.py tutti_spawn:decentralized", 2), ("step_end.py dp", 1),
                                            ("step_end.py ddp2", 1)])
def test_example_whose_ranks_are_no_scripts(example, ranks):
    check(forked_python.run(words_of(example)).stdout, ranks)
