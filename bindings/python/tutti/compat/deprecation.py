"""The lines that say what to write today: each is shown once, on rank 0, for the line of the script that caused it."""

import multiprocessing
import os
import sys
import warnings

_said: set[str] = set()
# A warning is about the script, so these are not the place that it names.
_NOT_THE_SCRIPT = ("tutti.compat", "lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities",
                   "contextlib", "functools", "importlib", "multiprocessing", "runpy", "torch")
# What launchers, Lightning's own among them, tell a process before there is a process group: its rank, or where it is.
_RANKS = ("RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
_PLACES = ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK")


def _is_rank_0() -> bool:
    """As the running strategy says, and as the launcher does."""
    from lightning_utilities.core.rank_zero import rank_zero_only

    given = {name: int(os.environ[name]) for name in _RANKS + _PLACES if os.environ.get(name, "").isdigit()}
    launched = next((given[name] for name in _RANKS if name in given), any(given.values()))
    return not getattr(rank_zero_only, "rank", 0) and not launched


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
    if text in _said or not _is_rank_0():
        return
    _said.add(text)
    file, line = _script_line()
    warnings.warn_explicit(text, FutureWarning, file, line)


def said() -> list[str]:
    """What this process has shown."""
    return sorted(_said)


def leave_out(texts: list[str]) -> None:
    """Does not show ``texts``, which the process has shown that spawned this one."""
    _said.update(texts)


def say_once_at_import(text: str) -> None:
    """say_once() for what happens while modules are imported: a spawned child repeats its parent's imports."""
    if multiprocessing.current_process().name == "MainProcess":
        say_once(text)
