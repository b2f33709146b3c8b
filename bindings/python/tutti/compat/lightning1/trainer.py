"""Lets Lightning's Trainer take what the Trainer of Lightning 1 took."""

import functools
import inspect
import os
from types import ModuleType
from typing import Any

from tutti.compat.lightning1 import hooks, trainer_argparse, trainer_arguments, tuning
from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.settings import settings_of

# Attributes of the Trainer that have another name today.
ATTRIBUTES = {
    "training_type_plugin": "strategy",
    "accelerator_backend": "strategy",
}


def _from_environment() -> dict[str, Any]:
    """Old arguments that are set as PL_TRAINER_GPUS=8 and the like, which count where the script names none."""
    found = {}
    for row in trainer_arguments.ARGUMENTS:
        text = os.environ.get(f"PL_TRAINER_{row.name.upper()}", "")
        if text:
            found[row.name] = trainer_argparse.value_of(text, row.types)
    return found


def _patch_init(package: ModuleType) -> None:
    init = package.Trainer.__init__

    @functools.wraps(init)
    def init_with_old_arguments(self: Any, *args: Any, **kwargs: Any) -> None:
        if args:
            raise TypeError(
                f"Trainer({trainer_arguments.devices.shown(args[0])}, …): the order of arguments is another in "
                "Lightning 2; write their names, such as Trainer(logger=…)")
        today, self._lightning1 = trainer_arguments.for_today(package, _from_environment() | kwargs)
        init(self, **trainer_arguments.devices.on_cpu_unless_named(today))

    package.Trainer.__init__ = init_with_old_arguments


def _patch_fit(package: ModuleType) -> None:
    fit = package.Trainer.fit

    @functools.wraps(fit)
    def fit_from_checkpoint(self: Any, *args: Any, **kwargs: Any) -> None:
        call = inspect.signature(fit).bind(self, *args, **kwargs)
        if call.arguments.get("ckpt_path") is None:
            call.arguments["ckpt_path"] = settings_of(self).ckpt_path
        fit(*call.args, **call.kwargs)

    package.Trainer.fit = fit_from_checkpoint


def _patch_run(package: ModuleType) -> None:
    run = package.Trainer._run

    @functools.wraps(run)
    def run_with_old_hooks(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        per_node = settings_of(self).prepare_data_per_node
        for owner in (model, getattr(self, "datamodule", None)):
            if per_node is not None and owner is not None:
                owner.prepare_data_per_node = per_node
        self._lightning1_output = None
        try:
            return run(self, model, *args, **kwargs)
        finally:
            adapted = vars(self).pop("_lightning1_old_order", None)
            if adapted is not None:
                adapted.undo()

    package.Trainer._run = run_with_old_hooks


def _old_attribute(name: str, today: str) -> property:

    def get(self: Any) -> Any:
        say_once(f"trainer.{name} is of Lightning 1: write trainer.{today}")
        return getattr(self, today)

    return property(get)


def _get_model(self: Any) -> Any:
    """The LightningModule."""
    say_once("trainer.get_model() is of Lightning 1: write trainer.lightning_module")
    return self.lightning_module


def _num_gpus(package: ModuleType) -> property:
    gpus = package.accelerators.CUDAAccelerator, package.accelerators.MPSAccelerator

    def get(self: Any) -> int:
        say_once("trainer.num_gpus is of Lightning 1: write trainer.num_devices, which counts CPU devices, too")
        on_gpus = isinstance(self.accelerator, gpus) or trainer_arguments.devices.cpus_stand_for_gpus()
        return self.num_devices if on_gpus else 0

    return property(get)


def patch(package: ModuleType) -> None:
    """Lets ``package.Trainer`` be used as in Lightning 1."""
    _patch_init(package)
    _patch_fit(package)
    _patch_run(package)
    for name, today in ATTRIBUTES.items():
        setattr(package.Trainer, name, _old_attribute(name, today))
    package.Trainer.get_model = _get_model
    package.Trainer.num_gpus = _num_gpus(package)
    tuning.patch(package)
    trainer_argparse.patch(package)
    hooks.patch(package)
