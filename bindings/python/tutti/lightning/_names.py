"""Names of strategies, as users give them to a Trainer."""

import inspect
from typing import Any

import torch

import tutti.torch

# How processes are started, by what follows the name of a strategy.
START_METHODS = {"": "popen", "_spawn": "spawn", "_fork": "fork", "_notebook": "fork"}
FAMILY = "tutti"

_DDP_OPTIONS = set(inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters) - {
    "module", "device_ids", "output_device", "dim", "process_group"
}


def split(name: str) -> tuple[str, str] | None:
    """The start method and the strategy in ``"tutti:NAME"``, ``"tutti_spawn:NAME"`` and so on; None for other names.

    Options follow after a comma or a colon: ``"tutti:bytegrad,codec=bf16"``.
    """
    family, colon, strategy = name.partition(":")
    suffix = family.removeprefix(FAMILY)
    if not colon or not family.startswith(FAMILY) or suffix not in START_METHODS:
        return None
    return START_METHODS[suffix], with_options(*strategy.replace(":", ",").split(","))


def with_options(name: str, *options: str) -> str:
    """The strategy name ``name`` with further options, each as ``option=value``."""
    before, _, given = name.partition(":")
    every = ",".join([part for part in given.split(",") if part] + [part for part in options if part])
    return f"{before}:{every}" if every else before


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(algorithm: Any, options: dict[str, Any]) -> tuple[tutti.torch.Strategy, dict[str, Any]]:
    """The strategy that ``algorithm`` and ``options`` name, and those of the options that are DDP's.

    ``algorithm`` is a strategy name, or an object whose attribute ``strategy`` is one.
    """
    name = getattr(algorithm, "strategy", algorithm)
    if not isinstance(name, str):
        raise TypeError(f"algorithm is a {type(algorithm).__name__}; give a strategy name such as \"bytegrad\"")
    of_ddp = {key: value for key, value in options.items() if key in _DDP_OPTIONS}
    own = (f"{key}={_text(value)}" for key, value in options.items() if key not in of_ddp)
    return tutti.torch.parse_strategy(with_options(name, *own)), of_ddp
