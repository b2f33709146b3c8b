"""Accelerate and the Trainer of transformers on the backend tutti."""

import pytest

import forked_python
from examples_test import EXAMPLES, run_example
from launchers import TORCHRUN, run, write

forked_python.import_once("torch._dynamo", "accelerate", "transformers.trainer", "tutti.accelerate", "tutti.torch")


@pytest.mark.parametrize("example, ranks", [("accelerate_loop.py", 3), ("trainer.py", 2)])
def test_example(example, ranks, tmp_path):
    words = run_example(ranks, f"huggingface/{example}")
    place = words.index("loss")
    assert float(words[place + 1]) < 0.001 and words[place + 2:] == ["on", str(ranks), "ranks"], words


def test_a_process_that_no_launcher_started():
    assert "on 1 ranks" in forked_python.run([EXAMPLES / "huggingface" / "accelerate_loop.py"]).stdout


COMMAND_LINE = """
import tutti.accelerate
from transformers import HfArgumentParser, TrainingArguments
arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
assert arguments.ddp_backend == "tutti"
"""


def test_the_backend_is_named_on_a_command_line(tmp_path):
    forked_python.run([write(tmp_path, COMMAND_LINE), "--output_dir", tmp_path, "--use_cpu", "--ddp_backend", "tutti"])


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
    script = write(tmp_path, BACKEND.replace("cpu=True, ", ""))
    ended = forked_python.run_on_ranks(2, [script], expected=1)
    assert ended.stderr.count("say Accelerator(cpu=True)") == 2, ended.stderr


TUTTI = {"TUTTI_RANK": "1", "TUTTI_SIZE": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


@pytest.mark.parametrize("launcher, variables, options, mend", [
    ("tutti", TUTTI, "cpu=True, ", "start the script by torchrun"),
    ("tutti", TUTTI, "", "say Accelerator(cpu=True)"),
    ("openmpi", OPEN_MPI, "", "say Accelerator(cpu=True)"),
])
def test_a_rank_of_another_launcher_does_not_train_alone(launcher, variables, options, mend, tmp_path):
    script = write(tmp_path, BACKEND.replace("cpu=True, ", options))
    error = forked_python.run([script], expected=1, **variables).stderr
    assert f"ValueError: rank 1: {launcher} has started 2 processes, and Accelerate would" in error and mend in error, error


def test_the_backend_is_tutti_and_ddp_takes_an_algorithm(tmp_path):
    run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, write(tmp_path, BACKEND)])
