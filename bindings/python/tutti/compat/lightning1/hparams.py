"""``self.hparams = hparams``, which the oldest pages wrote in place of save_hyperparameters."""

import copy
import sys
from types import FrameType, ModuleType
from typing import Any

from tutti.compat.deprecation import say_once


def _name_of(values: Any, frame: FrameType) -> str | None:
    """What the script calls ``values`` where it assigns them; load_from_checkpoint passes them by this name."""
    if frame.f_code.co_name == "__setattr__" and frame.f_back is not None:  # of torch.nn.Module
        frame = frame.f_back
    return next((name for name, value in frame.f_locals.items() if value is values), None)


def patch(package: ModuleType) -> None:
    """Lets LightningModule and LightningDataModule of ``package`` take hyperparameters by assignment."""
    for owner in package.LightningModule, package.LightningDataModule:

        def assign(self: Any, values: Any) -> None:
            say_once(f"{type(self).__name__}: self.hparams = … is of Lightning 1: write self.save_hyperparameters(…)")
            # As save_hyperparameters does, which would compare values with other arguments, such as arrays, by ==.
            self._set_hparams(values)
            self._hparams_initial = copy.deepcopy(self._hparams)
            self._hparams_name = _name_of(values, sys._getframe(1))
            self._log_hyperparams = True

        owner.hparams = owner.hparams.setter(assign)
