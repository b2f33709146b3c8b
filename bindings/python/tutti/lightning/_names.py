"""Names of strategies, as users give them to a Trainer."""

import inspect
from typing import Any

import torch

import tutti.torch
from tutti.torch.checks import check_bucket_cap_mb, check_flag
from tutti.torch.strategy_names import with_options

# How processes are started, by what follows the name of a strategy.
START_METHODS = {"": "popen", "_spawn": "spawn", "_fork": "fork", "_notebook": "fork"}
FAMILY = "tutti"

_OF_DDP = inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
_DDP_OPTIONS = _OF_DDP.keys() - {"module", "device_ids", "output_device", "dim", "process_group"}
_DDP_FLAGS = {name for name in _DDP_OPTIONS if isinstance(_OF_DDP[name].default, bool)}


def split(name: str) -> tuple[str, str] | None:
    """The start method and the strategy in ``"tutti:NAME"``, ``"tutti_spawn:NAME"`` and so on; None for other names.

    Options follow after a comma or a colon: ``"tutti:bytegrad,codec=bf16"``.
    """
    family, colon, strategy = name.partition(":")
    family = family.lower()  # Lightning takes names in any case
    suffix = family.removeprefix(FAMILY)
    if not colon or not family.startswith(FAMILY) or suffix not in START_METHODS:
        return None
    algorithm, *options = strategy.replace(":", ",").split(",")
    return START_METHODS[suffix], with_options(algorithm.lower(), *options)


def check_family(name: str) -> None:
    """ValueError where ``name`` has a strategy name of Tutti without its family: ``"bytegrad"``, ``"tuti:bytegrad"``."""
    family, _, rest = name.partition(":")
    strategy, suffix, whole = family.partition(",")[0], "", name
    if not _is_strategy(strategy):
        strategy, whole = rest.partition(",")[0], rest
        suffix = next((known for known in START_METHODS if known and family.endswith(known)), "")
        if not _is_strategy(strategy):
            return
    meant = f"{FAMILY}{suffix}:{whole}"
    families = ", ".join(FAMILY + known for known in START_METHODS)
    raise ValueError(f"strategy={name!r}: the name of a strategy of Tutti follows {families}: write strategy={meant!r}")


def _is_strategy(name: str) -> bool:
    try:
        tutti.torch.parse_strategy(name)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def take_autotune(algorithm: Any, given: bool | None) -> tuple[Any, bool | None]:
    """``algorithm`` without the option ``autotune``, and whether to tune: what the option says, else ``given``."""
    check_flag("autotune", given)
    name, colon, options = str(getattr(algorithm, "strategy", algorithm)).partition(":")
    parts = options.split(",")
    chosen = [part for part in parts if part.partition("=")[0] == "autotune"]
    if not chosen:
        return algorithm, given
    values = {"autotune=true": True, "autotune=false": False}
    if len(chosen) > 1 or chosen[0] not in values or given is not None:
        raise ValueError(f"strategy {name + colon + options!r}: give autotune=true or autotune=false, once")
    return with_options(name, *(part for part in parts if part not in chosen)), values[chosen[0]]


def autotunes(given: bool | None) -> bool:
    """Whether to tune: ``given``, or for None what ``TUTTI_AUTOTUNE`` says."""
    return tutti.torch._core().autotunes_by_default() if given is None else given


def _ddp_options_of(name: str) -> tuple[str, dict[str, Any]]:
    """The strategy name without the options of DDP in it, and these: ``"bytegrad:find_unused_parameters=true"``."""
    before, _, given = name.partition(":")
    own, of_ddp = [], {}
    for part in given.split(","):
        key, _, value = part.partition("=")
        if key not in _DDP_OPTIONS:
            own.append(part)
        elif key == "bucket_cap_mb":
            of_ddp[key] = _number_of_mib(name, value)
        elif value in ("true", "false"):
            of_ddp[key] = value == "true"
        else:
            raise ValueError(f"strategy {name!r}: {key}={value}; say true or false, or give {key} to TuttiStrategy")
    return with_options(before, *own), of_ddp


def _number_of_mib(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"strategy {name!r}: bucket_cap_mb={text}; give a number of MiB above 0") from None


def _check_ddp_options(of_ddp: dict[str, Any]) -> None:
    """Raises TypeError or ValueError, which names the option, where torch would end deep in a fit."""
    for key in of_ddp.keys() & _DDP_FLAGS:
        check_flag(key, of_ddp[key])
    check_bucket_cap_mb(of_ddp.get("bucket_cap_mb"))


def read(algorithm: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The strategy name that ``algorithm`` and ``options`` make, and those of the options that are DDP's.

    ``algorithm`` is a strategy name, or an object whose attribute ``strategy`` is one.
    """
    name = getattr(algorithm, "strategy", algorithm)
    if not isinstance(name, str):
        raise TypeError(f"algorithm is a {type(algorithm).__name__}; give a strategy name such as \"bytegrad\"")
    name, in_name = _ddp_options_of(name)
    for key in in_name.keys() & options.keys():
        raise ValueError(f"{key} is given twice: as an option, and in the name of the strategy")
    of_ddp = {key: value for key, value in {**in_name, **options}.items() if key in _DDP_OPTIONS}
    _check_ddp_options(of_ddp)
    own = (f"{key}={_text(value)}" for key, value in options.items() if key not in of_ddp)
    return with_options(name, *own), of_ddp


def wrapper_options(of_ddp: dict[str, Any], strategy: str) -> dict[str, Any]:
    """The options of Tutti's DistributedDataParallel that options of torch's stand for. ValueError names one it lacks."""
    given = {key: value for key, value in of_ddp.items() if key != "gradient_as_bucket_view"}
    options = {key: given.pop(key) for key in ("find_unused_parameters", "bucket_cap_mb") if key in given}
    if not given.pop("broadcast_buffers", True):
        options["buffers"] = "leave"
    if given:
        raise ValueError(f"the strategy {strategy}: {next(iter(given))} is an option of torch's DistributedDataParallel, which "
                         "trains where gradients are exchanged without autotune")
    return options
