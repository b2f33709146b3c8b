"""Callbacks that do what two arguments of Lightning 1's Trainer did, made for the package that the script imports."""

import functools
import importlib
from types import ModuleType
from typing import Any


@functools.cache
def _classes(package: ModuleType) -> tuple[type, type]:
    # __reduce__, because a class made here has no name by which a spawned process would find it.
    class WeightAveragingAtTheOptimizersRate(package.callbacks.StochasticWeightAveraging):
        """Averages weights at the learning rate that the optimizer has when the averaging begins."""

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if not self._initialized:
                self._swa_lrs = [group["lr"] for group in trainer.optimizers[0].param_groups]
            super().on_train_epoch_start(trainer, pl_module)

        def __reduce__(self) -> tuple[Any, ...]:
            return _weight_averaging_of, (package.__name__,)

    class GradientNorms(package.Callback):
        """Logs the norm of every gradient before each step of an optimizer."""

        def __init__(self, norm_type: float | str) -> None:
            self._norm_type = norm_type

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            pl_module.log_dict(package.utilities.grad_norm(pl_module, norm_type=self._norm_type))

        def __reduce__(self) -> tuple[Any, ...]:
            return _gradient_norms_of, (package.__name__, self._norm_type)

    return WeightAveragingAtTheOptimizersRate, GradientNorms


def weight_averaging_at_the_optimizers_rate(package: ModuleType) -> Any:
    """The callback of ``stochastic_weight_avg=True``, which knew no learning rate of its own."""
    return _classes(package)[0](swa_lrs=1.0)  # replaced before it is used


def gradient_norms(package: ModuleType, norm_type: float | str) -> Any:
    """The callback of ``track_grad_norm=norm_type``."""
    return _classes(package)[1](norm_type)


def _weight_averaging_of(package: str) -> Any:
    return weight_averaging_at_the_optimizers_rate(importlib.import_module(package))


def _gradient_norms_of(package: str, norm_type: float | str) -> Any:
    return gradient_norms(importlib.import_module(package), norm_type)
