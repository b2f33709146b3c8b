"""Arguments of callbacks that had another name in Lightning 1, or that could be left out."""

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once


def _filepath(arguments: dict[str, Any], value: Any) -> str:
    if value is None:
        return "leave the argument out"
    folder, name = (value, "") if os.path.isdir(value) else os.path.split(value)
    arguments |= {"dirpath": folder or ".", "filename": name or None}
    return f"dirpath={arguments['dirpath']!r}, filename={arguments['filename']!r}"


def _prefix(arguments: dict[str, Any], value: Any) -> str:
    if not value:
        return "leave the argument out"
    arguments["filename"] = f"{value}-{arguments.get('filename') or '{epoch}-{step}'}"
    return f"filename={arguments['filename']!r}"


def _every_n_epochs(arguments: dict[str, Any], value: Any) -> str:
    arguments["every_n_epochs"] = max(value, 0)  # -1 and 0: never
    return f"every_n_epochs={arguments['every_n_epochs']!r}"


def _mode(arguments: dict[str, Any], value: Any) -> str:
    """mode="auto": the larger is better for accuracies, as Lightning 1.0 guessed."""
    monitor = str(arguments.get("monitor"))
    arguments["mode"] = "max" if "acc" in monitor or monitor.startswith("fmeasure") else "min"
    return f"mode={arguments['mode']!r}"


def _save_top_k(arguments: dict[str, Any], value: Any) -> str:
    arguments["save_top_k"] = 1
    return "save_top_k=1"


def _left_out(arguments: dict[str, Any], value: Any) -> str:
    return "leave the argument out"


# {callback: ((argument, is it an old one?, what becomes of it), …)}, in this order.
_Row = tuple[str, Callable[[Any], bool], Callable[[dict[str, Any], Any], str]]
CALLBACK_ARGUMENTS: dict[str, tuple[_Row, ...]] = {
    "ModelCheckpoint": (
        ("filepath", lambda value: True, _filepath),
        ("prefix", lambda value: True, _prefix),
        ("period", lambda value: True, _every_n_epochs),
        ("every_n_val_epochs", lambda value: True, _every_n_epochs),
        ("save_top_k", lambda value: value is None, _save_top_k),
        ("mode", lambda value: value == "auto", _mode),
    ),
    "EarlyStopping": (("mode", lambda value: value == "auto", _mode),),
    # As GPUStatsMonitor and XLAStatsMonitor: today's logs everything that the device's allocator counts.
    "DeviceStatsMonitor": tuple(
        (name, lambda value: True, _left_out)
        for name in ("memory_utilization", "gpu_utilization", "intra_step_time", "inter_step_time", "fan_speed",
                     "temperature", "verbose")),
}

# What ModelCheckpoint took by position in Lightning 1.0 to 1.2.
_CHECKPOINT_ORDER = ("filepath", "monitor", "verbose", "save_last", "save_top_k", "save_weights_only", "mode", "period",
                     "prefix")


def _by_name(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The names of ``args`` where they are in the order of Lightning 1; empty where they may be in today's."""
    if name == "EarlyStopping":
        return {"monitor": args[0]} if args and kwargs.get("mode") == "auto" else {}
    # A folder has no {epoch} in its name, and while mode could be "auto" the first argument was filepath.
    if name != "ModelCheckpoint" or not args or not ("{" in str(args[0]) or kwargs.get("mode") == "auto"):
        return {}
    named = dict(zip(_CHECKPOINT_ORDER, args))
    others = ", ".join(f"{argument}={value!r}" for argument, value in named.items() if argument != "filepath")
    if others:
        say_once(f"ModelCheckpoint({', '.join(map(repr, args))}) is of Lightning 1: write names, ModelCheckpoint(…, "
                 f"{others})")
    return named


def _with_old_arguments(init: Callable[..., None], name: str, rows: tuple[_Row, ...]) -> Callable[..., None]:

    @functools.wraps(init)
    def init_with_old_arguments(self: Any, *args: Any, **kwargs: Any) -> None:
        if name == "EarlyStopping" and not args and "monitor" not in kwargs:
            kwargs["monitor"] = "early_stop_on"
            say_once('EarlyStopping() without monitor is of Lightning 1: write EarlyStopping(monitor="early_stop_on")')
        by_name = _by_name(name, args, kwargs)
        kwargs, args = by_name | kwargs, args[len(by_name):]
        for argument, is_old, apply in rows:
            if argument in kwargs and is_old(kwargs[argument]):
                value = kwargs.pop(argument)
                today = apply(kwargs, value)
                verb = today if today.startswith("leave") else f"write {name}({today})"
                say_once(f"{name}({argument}={value!r}) is of Lightning 1: {verb}")
        init(self, *args, **kwargs)

    return init_with_old_arguments


def patch(package: ModuleType) -> None:
    """Lets the callbacks of ``package`` take the old arguments."""
    for name, rows in CALLBACK_ARGUMENTS.items():
        callback = getattr(package.callbacks, name)
        callback.__init__ = _with_old_arguments(callback.__init__, name, rows)
