"""Accelerate and the Trainer of transformers on the backend tutti."""

import subprocess
import sys

import pytest

from launchers import environment
from examples_test import EXAMPLES, run_example


@pytest.mark.parametrize("example, ranks", [("accelerate_loop.py", 3), ("trainer.py", 2)])
def test_example(example, ranks, tmp_path):
    words = run_example(ranks, f"huggingface/{example}")
    place = words.index("loss")
    assert float(words[place + 1]) < 0.001 and words[place + 2:] == ["on", str(ranks), "ranks"], words


def test_a_process_that_no_launcher_started():
    command = [sys.executable, EXAMPLES / "huggingface" / "accelerate_loop.py"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert ended.returncode == 0 and "on 1 ranks" in ended.stdout, ended.stderr


BACKEND = """
import torch.distributed as dist
import accelerate.state
import tutti.accelerate, tutti.torch
from accelerate import Accelerator, InitProcessGroupKwargs
accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
assert dist.get_backend() == accelerator.state.backend == "tutti"
model = accelerator.prepare(__import__("torch").nn.Linear(2, 2))
tutti.torch.register(model, "bytegrad")
model(__import__("torch").ones(1, 2)).sum().backward()
accelerator.end_training()
"""


def test_a_rank_does_not_train_alone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BACKEND.replace("cpu=True, ", ""))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert ended.returncode != 0 and "say Accelerator(cpu=True)" in ended.stderr, ended.stderr


def test_the_backend_is_tutti_and_ddp_takes_an_algorithm(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BACKEND)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment())
    assert ended.returncode == 0, ended.stderr
