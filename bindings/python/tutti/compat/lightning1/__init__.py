"""Scripts for Lightning 1 on Lightning 2: arguments, hooks and import paths of 1.0 to 1.9 work again.

    import tutti.compat.lightning1
    tutti.compat.lightning1.activate()        # before the script imports from Lightning; or `python -m tutti.compat`

Each old form prints one line, on rank 0, that says what to write today; what cannot be mapped raises an error that says
so. docs/lightning1.md has the tables. Both ``lightning.pytorch`` and ``pytorch_lightning`` are served, whether they are
imported already or later; activate() itself imports neither.
"""

from types import ModuleType

from tutti._after_import import after_import
from tutti.lightning import PACKAGES  # the import also gives Lightning the strategies that old arguments name
from tutti.lightning._register import require

__all__ = ["activate"]

_active = False


def _patch(package: ModuleType) -> None:
    """Lets ``package``, lightning.pytorch or pytorch_lightning, take what Lightning 1 took."""
    require(package, "2.6.4", "tutti.compat.lightning1")
    from tutti.compat.lightning1 import callback_arguments, ddp_overrides, hparams, old_modules
    from tutti.compat.lightning1 import renamed_arguments, spawned_strategies, trainer

    spawned_strategies.patch(package)
    old_modules.patch(package)
    callback_arguments.patch(package)
    ddp_overrides.patch(package)
    hparams.patch(package)
    trainer.patch(package)
    renamed_arguments.patch(package)


def activate() -> None:
    """Lets this process run scripts for Lightning 1. A second call changes nothing."""
    global _active
    if _active:
        return
    _active = True
    for package in PACKAGES:
        after_import(package, _patch)
