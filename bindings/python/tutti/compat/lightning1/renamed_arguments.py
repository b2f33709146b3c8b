"""Methods with an argument that has another name today."""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once

# {(class, method): {old name: name today}}
RENAMED_ARGUMENTS = {
    ("Trainer", "fit"): {"train_dataloader": "train_dataloaders", "val_dataloader": "val_dataloaders"},
    ("Trainer", "validate"): {"val_dataloaders": "dataloaders"},
    ("Trainer", "test"): {"test_dataloaders": "dataloaders"},
    ("LightningModule", "log"): {"sync_dist_op": "reduce_fx"},
    ("LightningModule", "log_dict"): {"sync_dist_op": "reduce_fx"},
}


def _renaming(owner: str, method: Callable[..., Any], names: dict[str, str]) -> Callable[..., Any]:

    @functools.wraps(method)
    def call_with_new_names(self: Any, *args: Any, **kwargs: Any) -> Any:
        for old in names.keys() & kwargs.keys():
            kwargs[names[old]] = kwargs.pop(old)
            say_once(f"{owner}.{method.__name__}({old}=…) is of Lightning 1: write {method.__name__}({names[old]}=…)")
        return method(self, *args, **kwargs)

    return call_with_new_names


def patch(package: ModuleType) -> None:
    """Lets the methods of ``package`` take the old names."""
    for (owner, name), names in RENAMED_ARGUMENTS.items():
        setattr(getattr(package, owner), name, _renaming(owner, getattr(getattr(package, owner), name), names))
