"""``self.hparams = hparams``, which the oldest pages wrote in place of save_hyperparameters."""

from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once


def patch(package: ModuleType) -> None:
    """Lets LightningModule and LightningDataModule of ``package`` take hyperparameters by assignment."""
    for owner in package.LightningModule, package.LightningDataModule:

        def assign(self: Any, values: Any) -> None:
            say_once(f"{type(self).__name__}: self.hparams = … is of Lightning 1: write self.save_hyperparameters(…)")
            self._set_hparams(values)

        owner.hparams = owner.hparams.setter(assign)
