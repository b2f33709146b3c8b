"""python -m tutti.compare, with a script that trains for a fraction of a second."""

import contextlib
import inspect
import json
import os
import pathlib
import signal
import subprocess

import pytest
from torch.distributed.elastic.multiprocessing import PContext

from launchers import LIMIT, PYTHON, environment, run, wait_for, write
from tutti import compare
from tutti._measured_rank import covered, replaced

SCRIPT = """
import sys, torch, torch.distributed as dist
assert sys.argv[1:] == ["--name", "value"], sys.argv
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
group = dist.new_group(backend="gloo")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(4, 100)).sum().backward()
    dist.all_reduce(torch.ones(1), group=group)
    optimizer.step()
assert STEPS < 100, "not reached: the measurement ends the script"
"""


def compared(tmp_path, steps, *options, text=SCRIPT, expected=0):
    script = write(tmp_path, text.replace("STEPS", str(steps)), "train.py")
    return run([PYTHON, "-m", "tutti.compare", "--pairs", 1, "--steps", 5, *options, script, "--name", "value"], expected)


def test_both_backends_are_measured(tmp_path):
    ended = compared(tmp_path, 100, "--json", tmp_path / "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert list(result["runs"]) == ["gloo", "tutti"] and result["ranks"] == 2
    for backend in "gloo", "tutti":
        (of_run,) = result["runs"][backend]
        assert of_run["step_seconds"] > 0 and 0 < of_run["communication_share"] <= 1
    gloo, tutti = (result["runs"][backend][0]["step_seconds"] for backend in ("gloo", "tutti"))
    assert result["ratios"] == [gloo / tutti]
    words = ended.stdout.split()
    assert words[:3] == ["backend", "step", "communication"] and f"{gloo / tutti:.2f}" in words, ended.stdout


def test_a_script_that_ends_with_sys_exit(tmp_path):
    text = SCRIPT + "sys.exit(EXIT)\n"
    for code in ("None", "0"):
        compared(tmp_path, 8, "--json", tmp_path / "result.json", text=text.replace("EXIT", code))
        (of_run,) = json.loads((tmp_path / "result.json").read_text())["runs"]["tutti"]
        assert of_run["step_seconds"] > 0
    ended = compared(tmp_path, 8, text=text.replace("EXIT", "'what is wrong'"), expected=1)
    assert "under gloo" in ended.stderr and "what is wrong" in ended.stderr, ended.stderr


def test_an_optimizer_whose_step_calls_that_of_its_base_class(tmp_path):
    text = SCRIPT.replace("optimizer = torch.optim.SGD(", """class Own(torch.optim.SGD):
    def step(self):
        super().step()


torch.optim.SGD([torch.zeros(1)])
optimizer = Own(""")
    ended = compared(tmp_path, 4, text=text, expected=1)
    assert "made 4 optimizer steps, and --warmup=5" in ended.stderr, ended.stderr


def test_a_strategy_of_register(tmp_path):
    ended = compared(tmp_path, 100, "--strategy", "bytegrad:block=64", "--json", tmp_path / "result.json")
    assert "strategy bytegrad:block=64" in ended.stdout, ended.stdout
    assert json.loads((tmp_path / "result.json").read_text())["strategy"] == "bytegrad:block=64"


@pytest.mark.parametrize("strategy, message", [("decentralized", "strategy decentralized: use tutti.torch.DistributedDataParallel"),
                                               ("bytegrd", "no algorithm is named")])
def test_a_strategy_that_register_refuses(tmp_path, strategy, message):
    ended = compared(tmp_path, 100, "--strategy", strategy, expected=1)
    assert "under tutti" in ended.stderr and message in ended.stderr, ended.stderr


def test_a_strategy_for_a_script_without_models(tmp_path):
    text = SCRIPT.replace("torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))", "torch.nn.Linear(100, 100)")
    ended = compared(tmp_path, 100, "--strategy", "bytegrad", text=text, expected=1)
    assert "made no model of torch.nn.parallel.DistributedDataParallel" in ended.stderr, ended.stderr


def result_of(gloo, tutti, strategy=None):
    runs = {name: [{"step_seconds": ms / 1e3, "communication_share": None} for ms in of]
            for name, of in (("gloo", gloo), ("tutti", tutti))}
    return {"script": "train.py", "ranks": 2, "strategy": strategy, "runs": runs, "ratios": [a / b for a, b in zip(gloo, tutti)]}


def test_the_sentence_says_what_the_table_says():
    """Medians of 20 and 30 ms, where two of three pairs have gloo the slower one."""
    shown = compare.table(result_of([20, 60, 10], [15, 40, 30]))
    words = shown.split()
    assert words[words.index("gloo") + 1] == "20.00" and words[words.index("tutti") + 1] == "30.00", shown
    assert "gloo's step takes 0.67 times as long as tutti's (in single pairs 0.33 to 1.50)" in shown, shown
    assert "Pairs disagree on which of the two is faster" in shown, shown
    assert "disagree" not in compare.table(result_of([20, 21], [10, 12]))


def test_a_script_that_names_no_backend(tmp_path):
    mesh = """dist.device_mesh.init_device_mesh("cpu", (2,))
open(f"{__file__}.{dist.get_rank()}.{dist.get_backend_config()}", "w").close()"""
    text = SCRIPT.replace('dist.init_process_group("gloo")', mesh).replace('backend="gloo"', "")
    compared(tmp_path, 100, text=text)
    configs = [file.name.split(".")[-1].split(",")[0] for file in tmp_path.glob("train.py.*")]
    assert sorted(configs) == ["cpu:gloo"] * 2 + ["cpu:tutti"] * 2


def test_a_script_whose_groups_cannot_be_replaced(tmp_path):
    text = SCRIPT.replace('dist.init_process_group("gloo")', 'dist.init_process_group.__wrapped__("cpu:gloo")')
    ended = compared(tmp_path, 100, text=text.replace('group = dist.new_group(backend="gloo")', "group = None"), expected=1)
    assert "under tutti, no process group of " in ended.stderr and "init_process_group" in ended.stderr, ended.stderr


def test_too_few_steps(tmp_path):
    ended = compared(tmp_path, 3, expected=1)
    assert "made 3 optimizer steps, and --warmup=5" in ended.stderr, ended.stderr


def test_a_script_that_fails_is_shown(tmp_path):
    script = write(tmp_path, "raise SystemError('what is wrong')")
    ended = run([PYTHON, "-m", "tutti.compare", "--pairs", 1, script], expected=1)
    assert "under gloo" in ended.stderr and "what is wrong" in ended.stderr, ended.stderr


HANGS = """
import os, time
open(f"{__file__}.rank{os.environ['RANK']}", "w").close()
time.sleep(1000)
"""


def processes_of(script):
    """The processes whose command lines name the script: torchrun, its ranks and python -m tutti.compare."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.fsencode(script) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def kill_processes_of(script):
    for process in processes_of(script):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_ranks(tmp_path, number):
    script = write(tmp_path, HANGS, "train.py")
    command = subprocess.Popen([PYTHON, "-m", "tutti.compare", script], stderr=subprocess.PIPE, text=True,
                               env=environment())
    try:
        wait_for("two ranks", lambda: len(list(tmp_path.glob("train.py.rank?"))) == 2)
        command.send_signal(number)
        _, errors = command.communicate(timeout=LIMIT)
        assert command.returncode == 128 + number and "Traceback" not in errors, errors
        assert processes_of(script) == []
    finally:
        kill_processes_of(script)


def test_a_script_that_hangs_leaves_nothing(tmp_path):
    script = write(tmp_path, HANGS, "train.py")
    try:
        ended = run([PYTHON, "-m", "tutti.compare", "--timeout", 12, script], expected=1)
        assert f"under gloo, {script} did not end in 12 s" in ended.stderr, ended.stderr
        assert processes_of(script) == []
    finally:
        kill_processes_of(script)


def test_torchrun_has_the_time_that_its_ranks_have():
    """A torchrun that is killed before it has killed its ranks leaves them."""
    assert compare.PATIENCE > inspect.signature(PContext.close).parameters["timeout"].default


def test_a_process_that_keeps_the_output_open_does_not_delay_the_end(tmp_path):
    keeper = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)', __file__])"
    try:
        compared(tmp_path, 100, "--ranks", 1, text=SCRIPT.replace("assert sys", f"{keeper}\nassert sys"))
    finally:
        kill_processes_of(tmp_path / "train.py")


@pytest.mark.parametrize("options, message", [(["--ranks", "0"], "--ranks=0: expected at least 1"),
                                              (["--timeout", "nan"], "--timeout=nan: expected seconds above 0"),
                                              (["--warmup", "0"], "--warmup=0: expected at least 1"),
                                              ([], "no file nosuch.py")])
def test_wrong_options(options, message):
    ended = subprocess.run([PYTHON, "-m", "tutti.compare", *options, "nosuch.py"], capture_output=True, text=True,
                           timeout=60, env=environment())
    assert ended.returncode == 2 and message in ended.stderr, ended.stderr


def test_the_backend_is_replaced():
    assert [replaced(name, "tutti") for name in (None, "gloo", "tutti", "GLOO")] == ["tutti"] * 4
    assert replaced("CPU:GLOO", "tutti") == "cpu:tutti"
    assert replaced("cpu:gloo,cuda:nccl", "tutti") == "cpu:tutti,cuda:nccl"
    with pytest.raises(ValueError, match="nccl, which has no part for the CPU"):
        replaced("nccl", "tutti")


def test_spans_that_overlap_count_once():
    assert covered([]) == 0
    assert covered([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    run_of = lambda seconds, share: {"step_seconds": seconds, "communication_share": share}
    result = {"script": "train.py", "ranks": 2, "strategy": None, "ratios": [2.0],
              "runs": {"gloo": [run_of(0.02, 0.5)], "tutti": [run_of(0.01, None)]}}
    compare.plot(result, str(tmp_path / "plot.svg"))
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
