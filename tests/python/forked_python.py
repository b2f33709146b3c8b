"""Runs what `python` would run, in processes forked from a server that has imported what scripts import.

A script starts at once, where a python of its own takes 2 s of a core to import torch, and 7 s to import Lightning. For
tests of what scripts do; tests of how processes are started or end begin with a python of their own (`launchers.run`).
"""

import atexit
import functools
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from launchers import LIMIT, PYTHON, environment
from tutti.compat import main_module

_context = multiprocessing.get_context("forkserver")
_WAYS = {"-m": main_module.run_module, "-c": main_module.run_command}


def import_once(*modules):
    """Names the modules that the server imports before it forks the first process."""
    _context.set_forkserver_preload(list(modules))


@functools.cache
def _search_path(python_path):
    """The sys.path of a new python, which pytest has changed in this process."""
    program = "import json, sys; print(json.dumps(sys.path))"
    return json.loads(subprocess.run([PYTHON, "-c", program], check=True, capture_output=True,
                                     env=os.environ | {"PYTHONPATH": python_path}).stdout)


def _become(words, variables, search_path, output, errors):
    """Makes this process what `python WORDS` is."""
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False, errors="backslashreplace")
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = search_path
    sys.orig_argv = [sys.executable, *words]
    try:
        if words[0] in _WAYS:
            _WAYS[words[0]](words[1], words[2:])
        else:
            main_module.run_script(words[0], words[1:])
    except Exception:
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        threading._shutdown()  # waits for threads, as python does before it calls the functions of atexit
        atexit._run_exitfuncs()


def _run(words, environments, expected):
    """Runs `python WORDS` once in each of these environments; returns what the processes wrote together."""
    words = [str(word) for word in words]
    with tempfile.TemporaryDirectory() as directory:
        files = [pathlib.Path(directory, name) for name in ("output", "errors")]
        for file in files:
            file.touch()
        processes = [
            _context.Process(target=_become, name="MainProcess", args=(
                words, variables, _search_path(variables.get("PYTHONPATH", "")), *files))
            for variables in environments
        ]
        try:
            for process in processes:
                process.start()  # the first one waits until the server has imported its modules
            end = time.monotonic() + LIMIT
            for process in processes:
                process.join(max(0, end - time.monotonic()))
        finally:
            for process in processes:
                process.kill()
                process.join()
        codes = [process.exitcode for process in processes]
        ended = subprocess.CompletedProcess(words, next(filter(None, codes), 0), *(file.read_text() for file in files))
    assert (ended.returncode == 0) == (expected == 0), f"{words} ended with {codes}\n{ended.stdout}\n{ended.stderr}"
    return ended


def run(words, expected=0, **more):
    """Does what ``launchers.run([PYTHON, *words], expected, **more)`` does."""
    return _run(words, [environment(**more)], expected)


def run_on_ranks(size, words, expected=0, **more):
    """Runs `python WORDS` on ranks that find in their environment what torchrun tells them."""
    import torch.distributed  # here, since programs of tests that have no ranks do without torch

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # that of the agent
    job = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
           "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port,
           "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_RUN_ID": "none",
           "TORCHELASTIC_USE_AGENT_STORE": True}
    of_ranks = [job | {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank} | more for rank in range(size)]
    return _run(words, [environment(**{name: str(value) for name, value in one.items()}) for one in of_ranks], expected)
