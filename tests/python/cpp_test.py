"""DistributedDataParallel of Python and DataParallel of C++ are one: equal bits, and states that the other loads."""

import pathlib
import subprocess

import numpy
import pytest
import torch

import tutti
import tutti.torch
from ranks import run_ranks
from tutti.torch import states

RANKS = 2
STEPS = 20
SAMPLES, INPUTS, OUTPUTS = 16, 6, 3
BIN = pathlib.Path(tutti.__file__).absolute().parents[2] / "bin"
# The last one is in its warm-up, when all ranks step together.
STRATEGIES = [
    "gradient_allreduce", "bytegrad:error_feedback=true", "decentralized",
    "decentralized:communication_interval=3,peer_selection_mode=shift_one", "low_precision_decentralized",
    "qadam:warmup_steps=5", "async:warmup_steps=100"
]


def net():
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 16), torch.nn.ReLU(), torch.nn.Linear(16, OUTPUTS))


def floats(path):
    return torch.from_numpy(numpy.fromfile(path, dtype=numpy.float32))


def write(path, tensor):
    tensor.detach().numpy().tofile(path)


def set_weights(module, weights):
    with torch.no_grad():
        for parameter, values in zip(module.parameters(), weights.split([p.numel() for p in module.parameters()])):
            parameter.copy_(values.view_as(parameter))


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def optimizer_of(module, strategy):
    if not strategy.startswith("qadam"):
        return torch.optim.SGD(module.parameters(), 0.1)
    return tutti.torch.QAdam([
        {"params": [p for p in module.parameters() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in module.parameters() if p.dim() == 1], "lr": 0.02, "betas": (0.8, 0.99)}], lr=0.01)


def train(rank, folder, strategy, first, last):
    """What train_in_cpp does, with `python_` before the names of the results."""
    module = net()
    weights = floats(folder / f"weights.{rank}")
    set_weights(module, weights)
    optimizer = optimizer_of(module, strategy)
    model = tutti.torch.DistributedDataParallel(module, optimizer, strategy)
    if first > 0:
        set_weights(module, weights)
        if strategy.startswith("qadam"):
            state = (folder / f"optimizer.{rank}").read_bytes()
            optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: {"qadam": states.to_tensor(state)}}})
        state = states.to_tensor((folder / f"strategy.{rank}").read_bytes())
        model.load_state_dict({**model.state_dict(), "_extra_state": {"strategy": strategy, "state": {"of C++": state}}})
    batches = floats(folder / f"batches.{rank}").view(-1, SAMPLES, INPUTS + OUTPUTS)
    for step in range(first, last):
        optimizer.zero_grad()
        inputs, targets = (part.contiguous() for part in batches[step].split([INPUTS, OUTPUTS], 1))
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    if strategy.startswith("async"):
        model.flush()
    (state,) = model.state_dict()["_extra_state"]["state"].values()
    (folder / f"python_strategy.{rank}").write_bytes(states.to_bytes(state))
    write(folder / f"python_weights.{rank}", weights_of(module))
    if strategy.startswith("qadam"):
        (folder / f"python_optimizer.{rank}").write_bytes(states.to_bytes(optimizer.state_dict()["state"][0]["qadam"]))


def train_in_python(folder, strategy, first, last):
    run_ranks(RANKS, train, folder, strategy, first, last)


def train_in_cpp(folder, strategy, first, last):
    program = [BIN / "train_in_cpp", folder, strategy, str(first), str(last)]
    command = [BIN / "tutti", "launch", "-n", str(RANKS), "--", *program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def rename(folder, results):
    """Renames the files that one side has written to the names under which the other side reads them."""
    for path in folder.glob(f"{results}_*"):
        path.rename(folder / path.name.removeprefix(f"{results}_"))


def prepare(folder):
    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    for rank in range(RANKS):
        weights = torch.rand(sum(p.numel() for p in net().parameters()), generator=generator) - 0.5
        write(folder / f"weights.{rank}", weights)
        write(folder / f"batches.{rank}", torch.randn(STEPS, SAMPLES, INPUTS + OUTPUTS, generator=generator))
    return folder


def expect_equal(folder, a, other_folder, b, names=("weights", "strategy", "optimizer")):
    for name in names:
        for path in other_folder.glob(f"{b}_{name}.*"):
            mine = folder / path.name.replace(b, a, 1)
            assert mine.read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_python_trains_as_cpp_does_and_each_goes_on_from_the_others_state(strategy, tmp_path):
    whole = prepare(tmp_path / "whole")
    train_in_python(whole, strategy, 0, STEPS)
    train_in_cpp(whole, strategy, 0, STEPS)
    assert len(list(whole.glob("python_*"))) == (6 if strategy.startswith("qadam") else 4)
    expect_equal(whole, "python", whole, "cpp")
    assert not torch.equal(floats(whole / "cpp_weights.0"), floats(whole / "weights.0"))

    half = STEPS // 2
    for first, second in (("python", "cpp"), ("cpp", "python")):
        folder = prepare(tmp_path / first)
        {"python": train_in_python, "cpp": train_in_cpp}[first](folder, strategy, 0, half)
        rename(folder, first)
        {"python": train_in_python, "cpp": train_in_cpp}[second](folder, strategy, half, STEPS)
        expect_equal(folder, second, whole, "cpp")


def test_async_ends_where_cpp_ends(tmp_path):
    folder = prepare(tmp_path)
    train_in_python(folder, "async:sync_interval_ms=1,warmup_steps=0", 0, STEPS)
    train_in_cpp(folder, "async:sync_interval_ms=1,warmup_steps=0", 0, STEPS)
    start = floats(folder / "weights.0")
    python, cpp = (floats(folder / f"{side}_weights.0") for side in ("python", "cpp"))
    assert torch.equal(python, floats(folder / "python_weights.1"))  # after flush()
    moved = (cpp - start).norm()
    assert (python - cpp).norm() < 0.2 * moved, ((python - cpp).norm(), moved)
