"""States of callbacks and data modules as in Lightning 1: by on_save_checkpoint and on_load_checkpoint."""

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.hook_signatures import positional
from tutti.compat.lightning1.old_calls import does_nothing, overridden
from tutti.compat.lightning1.replaced_hooks import replace

# Hooks of data modules that Lightning 2 has dropped, and what to override today.
DATA_MODULE_HOOKS = {
    "on_save_checkpoint": "state_dict(self)",
    "on_load_checkpoint": "load_state_dict(self, state_dict)",
}


def _overrides(callback: Any, name: str, package: ModuleType) -> bool:
    return getattr(type(callback), name) is not getattr(package.Callback, name)


def _save(callback: Any, function: Callable[..., Any], trainer: Any, pl_module: Any,
          checkpoint: dict[str, Any]) -> None:
    """Calls on_save_checkpoint, without the checkpoint as in Lightning 1.0 if need be, and keeps what it returns."""
    parameters = positional(function)
    without = parameters is not None and len(parameters) == 2
    state = function(trainer, pl_module) if without else function(trainer, pl_module, checkpoint)
    if state is not None:
        checkpoint.setdefault("callbacks", {})[callback.state_key] = state
        say_once(f"{type(callback).__name__}.on_save_checkpoint returns a state, as in Lightning 1: return it from "
                 "def state_dict(self)")


def _load(callback: Any, function: Callable[..., Any], trainer: Any, pl_module: Any,
          checkpoint: dict[str, Any]) -> None:
    """Calls on_load_checkpoint with the state alone; without a state there is nothing to call it with."""
    states = checkpoint.get("callbacks", {})
    state = states.get(callback.state_key, states.get(callback._legacy_state_key))  # the class, before Lightning 1.5
    if state is not None:
        function(*(trainer, pl_module, state)[3 - len(positional(function)):])


def _adapted(callback: Any, package: ModuleType) -> dict[str, Callable[..., None]]:
    """{hook: what today's Lightning is to call in its place} for the two hooks of ``callback``."""
    found: dict[str, Callable[..., None]] = {}
    if _overrides(callback, "on_save_checkpoint", package):
        found["on_save_checkpoint"] = functools.partial(_save, callback, callback.on_save_checkpoint)
    if _overrides(callback, "on_load_checkpoint", package):
        parameters = [one.name for one in positional(callback.on_load_checkpoint) or ()]
        if len(parameters) == 1 or parameters[-1:] == ["callback_state"]:
            found["on_load_checkpoint"] = functools.partial(_load, callback, callback.on_load_checkpoint)
            say_once(f"{type(callback).__name__}.on_load_checkpoint({', '.join(parameters)}) is of Lightning 1: write "
                     "def load_state_dict(self, state_dict)")
    return found


def _with_old_states(call_callbacks: Callable[..., None], package: ModuleType) -> Callable[..., None]:

    @functools.wraps(call_callbacks)
    def call_adapted_callbacks(trainer: Any, checkpoint: dict[str, Any]) -> None:
        with contextlib.ExitStack() as undo:
            for callback in trainer.callbacks:
                for name, hook in _adapted(callback, package).items():
                    undo.callback(replace(callback, name, hook))
            call_callbacks(trainer, checkpoint)

    return call_adapted_callbacks


def _with_data_module(call_model: Callable[..., Any]) -> Callable[..., Any]:
    """The call of a model's hook; a data module's hook for the same checkpoint is called before it."""

    @functools.wraps(call_model)
    def call_data_module_and_model(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        data = trainer.datamodule
        if hook_name in DATA_MODULE_HOOKS and overridden(data, hook_name):
            say_once(f"{type(data).__name__}.{hook_name} is of Lightning 1: write def {DATA_MODULE_HOOKS[hook_name]}")
            getattr(data, hook_name)(*args)
        return call_model(trainer, hook_name, *args, **kwargs)

    return call_data_module_and_model


def patch(package: ModuleType) -> None:
    """Lets ``package`` save and load states as in Lightning 1, also where a script saves after the run."""
    call = package.trainer.call
    for name in "_call_callbacks_on_save_checkpoint", "_call_callbacks_on_load_checkpoint":
        setattr(call, name, _with_old_states(getattr(call, name), package))
    call._call_lightning_module_hook = _with_data_module(call._call_lightning_module_hook)
    for name in DATA_MODULE_HOOKS:
        setattr(package.LightningDataModule, name, does_nothing)
