"""Processes that an active process starts are active, too: those of Lightning's launchers, and spawned ones."""

import functools
import types
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any

import tutti.compat
from tutti._after_import import after_import
from tutti.compat import deprecation

# Lightning is installed under two names, and each has a launcher of its own.
_LAUNCHERS = tuple(
    f"{fabric}.strategies.launchers.subprocess_script" for fabric in ("lightning.fabric", "lightning_fabric"))


def activate_in_children() -> None:
    """Lets the processes that this one starts call ``tutti.compat.activate()`` before they load anything."""
    spawn.get_preparation_data = _with_activation(spawn.get_preparation_data)
    for name in _LAUNCHERS:
        after_import(name, _change_commands)


class _Activation:
    """Activates the process that unpickles it."""

    def __reduce__(self) -> tuple[Callable[[list[str]], None], tuple[list[str]]]:
        return _activate, (deprecation.said(),)


def _activate(said: list[str]) -> None:
    tutti.compat.activate()
    deprecation.leave_out(said)


def _with_activation(original: Callable[[str], dict[str, Any]]) -> Callable[[str], dict[str, Any]]:

    @functools.wraps(original)
    def get_preparation_data(name: str) -> dict[str, Any]:
        # A spawned child unpickles this dictionary first of all, before it runs the script again as __mp_main__.
        return {"tutti.compat": _Activation(), **original(name)}

    return get_preparation_data


def _change_commands(launcher: types.ModuleType) -> None:
    """Lets the script be run again, once for each local rank, by ``python -m tutti.compat``."""
    try:
        basic, hydra = launcher._basic_subprocess_cmd, launcher._hydra_subprocess_cmd
    except AttributeError as error:
        raise ImportError(f"tutti.compat does not know this Lightning, whose ranks would run without it ({error}): use "
                          "another version, or start the ranks by `torchrun -m tutti.compat script.py`") from error

    def basic_subprocess_cmd() -> list[str]:
        return _under_compat(basic())

    def hydra_subprocess_cmd(local_rank: int) -> tuple[list[str], str]:
        command, folder = hydra(local_rank)
        return _under_compat(command), folder

    launcher._basic_subprocess_cmd = basic_subprocess_cmd
    launcher._hydra_subprocess_cmd = hydra_subprocess_cmd


def _under_compat(command: list[str]) -> list[str]:
    python, *rest = command
    return [python, "-m", "tutti.compat", *rest]
