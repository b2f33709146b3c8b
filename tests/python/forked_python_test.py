"""Processes that forked_python.py forks do what a python of their own does."""

import pytest

import forked_python
from launchers import PYTHON, run, write

FACTS = """
import multiprocessing, os, sys
print(sys.argv, sys.orig_argv, sys.path, os.getcwd(), sorted(os.environ.items()), multiprocessing.current_process().name)
print(__name__, __spec__ and __spec__.name, len(os.listdir("/proc/self/task")), "pytest" in sys.modules)
"""
ENDS = {
    "well": "pass",
    "error": "def inner():\n    raise ValueError('wrong')\ninner()",
    "exit": "sys.exit(7)",
    "last words": "sys.exit('the end')",
    "killed": "sys.stdout.flush(); sys.stderr.flush(); os.kill(os.getpid(), 9)",
    "syntax error": "not python",
}
START = """
import atexit, os, sys, threading, time
print("begins", end="")
print("complains", end="", file=sys.stderr)
atexit.register(print, "ends")
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
"""


def both(words, **more):
    """What python does, and a forked process."""
    ended = run([PYTHON, *words], **more), forked_python.run(words, **more)
    return [(one.returncode, one.stdout, one.stderr) for one in ended]


@pytest.mark.parametrize("how", ["script", "module", "command"])
def test_what_a_process_finds(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = {"script": [write(tmp_path, FACTS)], "module": ["-m", "script"], "command": ["-c", FACTS]}[how]
    write(tmp_path, FACTS)
    python, forked = both([*words, "-x", "two words"], GIVEN="to the process")
    assert python == forked and "GIVEN" in python[1]


@pytest.mark.parametrize("end", ENDS)
def test_how_a_process_ends(end, tmp_path):
    python, forked = both([write(tmp_path, START + ENDS[end] + "\n")], expected=int(end != "well"))
    assert python == forked


def test_ranks_know_their_places(tmp_path):
    script = write(tmp_path, "import os; os.write(1, f'{os.environ[\"RANK\"]} of {os.environ[\"WORLD_SIZE\"]}\\n'.encode())")
    assert sorted(forked_python.run_on_ranks(3, [script]).stdout.split("\n")) == ["", "0 of 3", "1 of 3", "2 of 3"]


def test_a_rank_that_fails_is_told(tmp_path):
    script = write(tmp_path, "import os, sys; sys.exit(5 * int(os.environ['RANK']))")
    assert forked_python.run_on_ranks(2, [script], expected=1).returncode == 5
    with pytest.raises(AssertionError, match=r"ended with \[0, 5\]"):
        forked_python.run_on_ranks(2, [script])
