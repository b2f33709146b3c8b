"""The examples of the docs: each on ranks as torchrun makes them, and one run by torchrun as its first line says."""

import pathlib
import re

import pytest

import forked_python
from launchers import TORCHRUN, run

EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"
forked_python.import_once("torch._dynamo", "torch.distributed.fsdp", "tutti.torch")


def run_example(ranks, name, *arguments):
    """The words that an example prints on some ranks."""
    return forked_python.run_on_ranks(ranks, [EXAMPLES / name, *arguments]).stdout.split()


def test_torchrun():
    text = run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, EXAMPLES / "ddp.py"]).stdout
    assert re.fullmatch(r"loss 0\.00\d+ on 2 ranks\n", text), text


@pytest.mark.parametrize("example, loss", [
    ("ddp.py", 0.01), ("fsdp2.py", 0.2), ("bytegrad_ddp.py", 0.01), ("decentralized.py", 0.01),
    ("decentralized.py low_precision_decentralized", 0.01), ("decentralized.py bytegrad", 0.01), ("qadam.py", 0.01),
    ("async.py", 0.01)
])
def test_example(example, loss):
    words = run_example(2, *example.split())
    assert words[0] == "loss" and float(words[1]) < loss and words[2:] == ["on", "2", "ranks"], words


def test_autotune():
    words = run_example(2, "autotune.py")
    assert words[0] == "done:" and int(words[1]) >= 3 and words[5].startswith("steps") and "saves" in words, words


def test_checkpoint(tmp_path):
    losses = []
    for start, ranks in enumerate([2, 2, 3, 1], 1):
        words = run_example(ranks, "checkpoint.py", tmp_path)
        assert words[2:] == f"on {ranks} ranks after {100 * start} steps".split(), words
        losses.append(float(words[1]))
    assert all(loss < 0.01 for loss in losses), losses
    assert sorted(path.name for path in (tmp_path / "step300").iterdir()) == ["rank0.pt", "rank1.pt", "rank2.pt"]


# Runs an example that finds its files on rank 0 alone.
ON_RANK_0 = """
import os, runpy, sys
script, folder, *more = sys.argv[1:]
sys.argv = [script, folder if os.environ["RANK"] == "0" else "nowhere", *more]
runpy.run_path(script, run_name="__main__")
"""


def test_training(tmp_path):
    losses = []
    for strategy in ["decentralized", "bytegrad"]:  # each goes on where the last one ended
        program = ["-c", ON_RANK_0, EXAMPLES / "training.py", tmp_path, strategy]
        words = forked_python.run_on_ranks(2, program).stdout.split()
        assert words[-5] == "loss" and words[-3:] == ["on", "2", "ranks"], words
        losses.append(float(words[-4]))
        text = " ".join(words[:-5])
        shares = re.fullmatch(r"ms of a step: waited ([\d.]+), engine ([\d.]+), of these waiting ([\d.]+)", text)
        assert shares and 0 <= float(shares[3]) <= float(shares[2]), text
    assert losses[1] < losses[0], losses
