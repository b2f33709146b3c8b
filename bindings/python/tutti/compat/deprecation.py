"""The lines that say what to write today: each is shown once, on rank 0, for the line of the script that caused it."""

import multiprocessing
import os
import sys
import warnings

_said: set[str] = set()
# A warning is about the script, so these are not the place that it names.
_NOT_THE_SCRIPT = ("tutti.compat", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities",
                   "contextlib", "functools", "importlib", "multiprocessing", "runpy", "torch")
# What launchers, Lightning's own among them, tell a process before there is a process group.
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
          "HOROVOD_RANK")


def _rank() -> int:
    """This process's rank: the running strategy's, or the launcher's."""
    from lightning_utilities.core.rank_zero import rank_zero_only

    launched = next((int(os.environ[name]) for name in _RANKS if os.environ.get(name, "").isdigit()), 0)
    return getattr(rank_zero_only, "rank", 0) or launched


def _script_line() -> tuple[str, int]:
    """File and line of the innermost frame that belongs to the script."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _of_a_library(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _of_a_library(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in _NOT_THE_SCRIPT)


def say_once(text: str) -> None:
    """Shows ``text`` as a FutureWarning, unless this process has shown it, or is not rank 0."""
    if text in _said or _rank() != 0:
        return
    _said.add(text)
    file, line = _script_line()
    warnings.warn_explicit(text, FutureWarning, file, line)


def say_once_at_import(text: str) -> None:
    """say_once() for what happens while modules are imported: a spawned child repeats its parent's imports."""
    if multiprocessing.current_process().name == "MainProcess":
        say_once(text)
