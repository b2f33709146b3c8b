"""trainer.tune and trainer.tuner of Lightning 1, by the Tuner of Lightning 2."""

from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.settings import settings_of


def patch(package: ModuleType) -> None:
    """Gives ``package.Trainer`` the method ``tune`` and the property ``tuner``."""

    def tune(self: Any, model: Any, train_dataloaders: Any = None, val_dataloaders: Any = None, dataloaders: Any = None,
             datamodule: Any = None, scale_batch_size_kwargs: dict[str, Any] | None = None,
             lr_find_kwargs: dict[str, Any] | None = None, method: str = "fit") -> dict[str, Any]:
        """Finds the batch size, then the learning rate, as auto_scale_batch_size and auto_lr_find of the Trainer say.

        Returns what was found, under ``scale_batch_size`` and ``lr_find``.
        """
        settings, tuner = settings_of(self), package.tuner.Tuner(self)
        if not settings.auto_scale_batch_size and not settings.auto_lr_find:
            raise ValueError(
                "trainer.tune(model): neither auto_lr_find nor auto_scale_batch_size of the Trainer is set. "
                "Today: Tuner(trainer).lr_find(model)")
        say_once("trainer.tune(model) is of Lightning 1: write Tuner(trainer).lr_find(model) or "
                 f"Tuner(trainer).scale_batch_size(model), with Tuner of {package.__name__}.tuner")
        data = {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders, "dataloaders": dataloaders,
                "datamodule": datamodule, "method": method}
        found: dict[str, Any] = {}
        ckpt_path, settings.ckpt_path = settings.ckpt_path, None  # Lightning 1 did not resume for tuning
        try:
            if settings.auto_scale_batch_size:
                found["scale_batch_size"] = tuner.scale_batch_size(
                    model, **{"mode": settings.auto_scale_batch_size} | data | (scale_batch_size_kwargs or {}))
            if settings.auto_lr_find:
                name = settings.auto_lr_find if isinstance(settings.auto_lr_find, str) else ""
                found["lr_find"] = tuner.lr_find(model, **{"attr_name": name} | data | (lr_find_kwargs or {}))
        finally:
            settings.ckpt_path = ckpt_path
        return found

    class TunerOfLightning1(package.tuner.Tuner):
        """The Tuner, whose lr_find changes the model only if told to."""

        def lr_find(self, *args: Any, update_attr: bool = False, **kwargs: Any) -> Any:
            return super().lr_find(*args, update_attr=update_attr, **kwargs)

    def tuner(self: Any) -> Any:
        say_once(f"trainer.tuner is of Lightning 1: write Tuner(trainer), with Tuner of {package.__name__}.tuner; its "
                 "lr_find sets the learning rate unless update_attr=False")
        return TunerOfLightning1(self)

    package.Trainer.tune = tune
    package.Trainer.tuner = property(tuner)
