"""Methods of Lightning's own classes, as a script calls them by ``super()`` or ``self``: in the old order, too."""

import functools
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tutti.compat.lightning1.hook_signatures import HOOKS, Hook, positional

_Method = Callable[..., Any]


def does_nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """What ``super()`` finds of a hook that Lightning 2 has dropped."""


def returns_outputs(self: Any, outputs: Any) -> Any:
    """What ``super()`` finds of ``*_step_end``, which may change the outputs."""
    return outputs


def overridden(owner: Any, name: str) -> bool:
    """Whether the script has the dropped hook ``name`` in ``owner``, a model or a callback."""
    hook = getattr(owner, name, None)
    return callable(hook) and getattr(hook, "__func__", None) not in (does_nothing, returns_outputs)


def _accept_old_order(method: _Method, row: Hook, leading: tuple[str, ...]) -> _Method:
    """``method`` of a base class, which may be called in the old order; ``leading`` arguments are first in both."""
    parameters = positional(method)
    old, today = (*leading, *row.old), (*leading, *row.today)
    if parameters is None or len(parameters) > len(old):  # with self: it takes all that there were
        return method
    only_old = set(old) - set(today)

    @functools.wraps(method)
    def either_order(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) > len(today) or only_old & kwargs.keys():
            args = (*(value for name, value in zip(old, args) if name not in only_old), *args[len(old):])
            kwargs = {name: value for name, value in kwargs.items() if name not in only_old}
        return method(self, *args, **kwargs)

    return either_order


def _for_first_dataloader(method: _Method) -> _Method:
    """transfer_batch_to_device, which was not given the dataloader's index."""

    @functools.wraps(method)
    def with_or_without_index(self: Any, batch: Any, device: Any, dataloader_idx: int = 0) -> Any:
        return method(self, batch, device, dataloader_idx)

    return with_or_without_index


def _without_optimizer(method: _Method) -> _Method:
    """backward or manual_backward, which were given the optimizer and its index after the loss."""

    @functools.wraps(method)
    def either_order(self: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        if args and (args[0] is None or hasattr(args[0], "param_groups")):
            args = args[2:]
        return method(self, loss, *args, **kwargs)

    return either_order


def _toggle_with_index(method: _Method) -> _Method:
    """toggle_optimizer, which was given the optimizer's index, too."""

    @functools.wraps(method)
    def either_order(self: Any, optimizer: Any, optimizer_idx: int | None = None) -> None:
        method(self, optimizer)

    return either_order


def _untoggle_by_index(method: _Method) -> _Method:
    """untoggle_optimizer, which was given the optimizer's index in place of the optimizer."""

    @functools.wraps(method)
    def either_argument(self: Any, optimizer: Any = None, optimizer_idx: int | None = None) -> None:
        index = optimizer if isinstance(optimizer, int) else optimizer_idx
        method(self, optimizer if index is None else self.trainer.optimizers[index])

    return either_argument


def _with_subclasses(base: type) -> Iterator[type]:
    yield base
    for one in base.__subclasses__():
        yield from _with_subclasses(one)


def _patch_hooks(owner: type, leading: tuple[str, ...] = ()) -> None:
    """Lets the hooks that ``owner`` itself has be called in the old order."""
    for row in HOOKS:
        if row.name in vars(owner):
            setattr(owner, row.name, _accept_old_order(vars(owner)[row.name], row, leading))


def patch(package: ModuleType) -> None:
    """Lets the methods of models, data modules and callbacks of ``package`` be called in the old order."""
    model, data = package.LightningModule, package.LightningDataModule
    for base in model.__mro__:
        if base.__module__.startswith(f"{package.__name__}."):
            _patch_hooks(base)
    # Lightning's own callbacks, too: scripts derive progress bars from them.
    for callback in set(_with_subclasses(package.Callback)):
        if callback.__module__.startswith(f"{package.__name__}."):
            _patch_hooks(callback, ("trainer", "pl_module"))
    for owner in model, data:
        owner.transfer_batch_to_device = _for_first_dataloader(owner.transfer_batch_to_device)
    for name in ("backward", "manual_backward"):
        setattr(model, name, _without_optimizer(getattr(model, name)))
    model.toggle_optimizer = _toggle_with_index(model.toggle_optimizer)
    model.untoggle_optimizer = _untoggle_by_index(model.untoggle_optimizer)
