"""Lightning 1's words for devices and strategies: gpus=8, accelerator="ddp", plugins="ddp_sharded" and the like."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tutti.compat.deprecation import say_once
from tutti.lightning._environment import LauncherEnvironment

if TYPE_CHECKING:
    from tutti.compat.lightning1.trainer_arguments import Call

# TUTTI_COMPAT_GPUS=cpu lets CPU devices stand for GPUs, so that a script for GPUs can be tried without one.
GPUS_VARIABLE = "TUTTI_COMPAT_GPUS"
# accelerator= and distributed_backend= named a strategy up to Lightning 1.4.
_STRATEGY_WORDS = re.compile(r"dp|ddp.*|horovod|deepspeed.*|fsdp|tpu_spawn|bagua")
_GPUS_TEXT = re.compile(r"\s*(-?\d+\s*(,\s*\d+\s*)*,?\s*)?")
_NEW_STRATEGY_NAMES = {
    "ddp_cpu": "ddp_spawn",
    "ddp_fully_sharded": "fsdp",
    "fsdp_native": "fsdp",
    "fsdp_native_full_shard_offload": "fsdp_cpu_offload",
    "tpu_spawn": "xla",
    "tpu_spawn_debug": "xla_debug",
}
_NAMING_DEVICES = ("accelerator", "devices", "strategy", "plugins")
# What launchers tell a process whose devices, and whose strategy, they may have chosen. A batch script has SLURM's, too.
_OF_LAUNCHERS = ("RANK", "JSM_NAMESPACE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK")
_NO_GPUS: tuple[Any, ...] = (None, 0, "0", "", [], ())


def shown(value: Any) -> str:
    """``value`` as a script writes it; only the class of an object."""
    if isinstance(value, str):
        return f'"{str(value)}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    if value is None or isinstance(value, (bool, int, float, dict, os.PathLike)):
        return repr(value)
    return f"{type(value).__name__}(…)"


def written(**arguments: Any) -> str:
    """Trainer(…) with these arguments, as a script writes it."""
    return f"Trainer({', '.join(f'{name}={shown(value)}' for name, value in arguments.items())})"


def cpus_stand_for_gpus() -> bool:
    """Whether the environment lets CPU devices stand for GPUs."""
    return os.environ.get(GPUS_VARIABLE) == "cpu"


def is_old_accelerator(value: Any) -> bool:
    """Whether ``accelerator=value`` names a strategy, as in Lightning 1.0 to 1.4, or nothing."""
    return value is None or (isinstance(value, str) and _STRATEGY_WORDS.fullmatch(value.lower()) is not None)


def is_old_strategy(value: Any) -> bool:
    """Whether ``strategy=value`` has another name today, or names nothing."""
    return value is None or (isinstance(value, str) and value.lower() in _NEW_STRATEGY_NAMES)


def has_old_plugins(value: Any) -> bool:
    """Whether ``plugins=value`` has strategies in it, by name or as objects."""
    return any(map(_is_strategy, _listed(value)))


def _is_strategy(plugin: Any) -> bool:
    return isinstance(plugin, str) or hasattr(plugin, "setup_environment")


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _strategy_arguments(call: "Call", strategy: Any) -> dict[str, Any]:
    """Today's arguments for a strategy that was named without devices: without GPUs or TPUs it ran on CPUs."""
    cpu = isinstance(strategy, str) and strategy.lower() == "ddp_cpu"
    elsewhere = any(call.given.get(name) not in _NO_GPUS for name in ("gpus", "tpu_cores", "hpus"))
    elsewhere |= call.today.get("accelerator", "cpu") != "cpu"
    if isinstance(strategy, str):
        strategy = _NEW_STRATEGY_NAMES.get(strategy.lower(), strategy)
    if cpu and elsewhere:
        raise ValueError('Trainer(accelerator="ddp_cpu") with GPUs or TPUs: give one of them. Today: '
                         'Trainer(accelerator="cpu", strategy="ddp_spawn", devices=2)')
    return {"strategy": strategy} if elsewhere else {"accelerator": "cpu", "strategy": strategy}


def accelerator_or_strategy(name: str) -> Callable[["Call", Any], str]:
    """The row of ``accelerator`` or ``distributed_backend``, which both named a strategy."""

    def apply(call: "Call", value: Any) -> str:
        if value is None:
            return "leave the argument out"
        arguments = _strategy_arguments(call, value)
        other = call.today.get("strategy", arguments["strategy"])
        if other != arguments["strategy"]:
            raise ValueError(f"Trainer({name}={shown(value)}) and the strategy {shown(other)} contradict each other. "
                             f"Today: {written(strategy=other)} or {written(**arguments)}")
        return call.says(**arguments) + _where_it_runs(arguments)

    return apply


def _where_it_runs(arguments: dict[str, Any]) -> str:
    """What to say besides where ``arguments`` name a strategy that splits batches over several devices of the CPU only."""
    on_cpu = arguments.get("accelerator") == "cpu" or cpus_stand_for_gpus()
    if on_cpu or arguments["strategy"] not in ("dp", "ddp2"):
        return ""
    return (f", which takes one GPU at most today ({GPUS_VARIABLE}=cpu runs it on CPUs), or {written(strategy='ddp')} on "
            "several")


def strategy(call: "Call", value: Any) -> str:
    """The row of ``strategy``."""
    if value is None:
        return "leave the argument out"
    return call.says(strategy=_NEW_STRATEGY_NAMES[value.lower()])


def by_mpirun() -> bool:
    """Whether Open MPI's mpirun has started the ranks, which Lightning 1 took for those of Horovod."""
    # torchrun that mpirun has started, or Lightning itself, gives processes ranks of their own.
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1 and LauncherEnvironment.detect()


def plugins(call: "Call", value: Any) -> str:
    """The row of ``plugins``: a strategy in it counts more than the strategy's word beside it."""
    strategies = [plugin for plugin in _listed(value) if _is_strategy(plugin)]
    others = [plugin for plugin in _listed(value) if not _is_strategy(plugin)]
    if len(strategies) > 1 or not isinstance(call.today.get("strategy", ""), str):
        raise ValueError(f"Trainer(plugins={shown(value)}) has a strategy beside another. Today: "
                         f"{written(strategy=strategies[0])}")
    arguments = _strategy_arguments(call, strategies[0])
    return call.says(**arguments, **({"plugins": others} if others else {}))


def _count(value: int | str | list[int] | tuple[int, ...]) -> int:
    """How many devices ``gpus=value`` names; every core of this process for all GPUs."""
    if isinstance(value, str):
        value = [int(part) for part in value.split(",") if part.strip()] if "," in value else int(value)
    if value in (-1, [-1]):
        return len(os.sched_getaffinity(0))
    return value if isinstance(value, int) else len(value)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def gpus(call: "Call", value: Any) -> str:
    """The row of ``gpus``. As in Lightning 1.5 and newer, "3" is three GPUs; "3," is the GPU with that index."""
    named = isinstance(value, (int, list, tuple)) or (isinstance(value, str) and _GPUS_TEXT.fullmatch(value))
    if isinstance(value, bool) or not (named or value is None):
        raise ValueError(f'Trainer(gpus={shown(value)}): expected a number, a list or a str such as "0,1". Today: '
                         'Trainer(accelerator="gpu", devices=2)')
    chosen = call.today.get("accelerator", "auto")
    if value in _NO_GPUS:
        elsewhere = chosen != "auto" or "devices" in call.today or any(
            call.given.get(name) for name in ("tpu_cores", "hpus"))
        return "leave the argument out" if elsewhere else call.says(accelerator="cpu")
    if os.environ.get(GPUS_VARIABLE) and not cpus_stand_for_gpus():
        raise ValueError(f"{GPUS_VARIABLE}={os.environ[GPUS_VARIABLE]}: expected cpu, where CPU devices stand for GPUs, "
                         "or nothing")
    if call.today.get("devices", "auto") != "auto" or chosen not in ("auto", "gpu", "cuda"):
        raise ValueError(f"Trainer(gpus={shown(value)}) contradicts {written(**call.today)}. Today: "
                         f"{written(accelerator='gpu', devices=value)}")
    if cpus_stand_for_gpus():
        return call.says(accelerator="cpu", devices=_count(value))
    if not _has_gpu():
        raise ValueError(
            f"Trainer(gpus={shown(value)}): this machine has no GPU. On CPUs write "
            f"{written(accelerator='cpu', devices=_count(value))}; {GPUS_VARIABLE}=cpu lets the script run "
            "there as it is")
    return call.says(accelerator="gpu", devices=list(value) if isinstance(value, tuple) else value)


def tpu_cores(call: "Call", value: Any) -> str:
    """The row of ``tpu_cores``."""
    return "leave the argument out" if value is None else call.says(accelerator="tpu", devices=value)


def hpus(call: "Call", value: Any) -> str:
    """The row of ``hpus``, for which Lightning asks for the package lightning-habana."""
    return "leave the argument out" if value in (None, 0) else call.says(accelerator="hpu", devices=value)


def num_processes(call: "Call", value: Any) -> str:
    """The row of ``num_processes``, which counted on CPUs only."""
    if value is None or "devices" in call.today or call.today.get("accelerator", "cpu") not in ("auto", "cpu"):
        return "leave the argument out"
    return call.says(accelerator="cpu", devices=value)


def auto_select_gpus(call: "Call", value: Any) -> str:
    """The row of ``auto_select_gpus``, which chose among GPUs that were given by number."""
    number = call.today.get("devices")
    if not value or not isinstance(number, int):
        return "leave the argument out"
    if call.today.get("accelerator") in ("gpu", "cuda", "auto"):
        call.today["devices"] = call.package.accelerators.find_usable_cuda_devices(number)
    return (f"Trainer(devices=find_usable_cuda_devices({number})), which {call.package.__name__}.accelerators has")


def on_cpu_unless_named(today: dict[str, Any]) -> dict[str, Any]:
    """``today`` with the CPU where the script names no device, as in Lightning 1; today's Trainer takes every GPU."""
    named = any(name in today or os.environ.get(f"PL_TRAINER_{name.upper()}") for name in _NAMING_DEVICES)
    if named or any(name in os.environ for name in _OF_LAUNCHERS) or not _has_gpu():
        return today
    say_once("Trainer(…) that names no device is of Lightning 1, where it trained on the CPU: write "
             f"{written(accelerator='cpu')}, or {written(accelerator='gpu', devices=1)}")
    return today | {"accelerator": "cpu"}
