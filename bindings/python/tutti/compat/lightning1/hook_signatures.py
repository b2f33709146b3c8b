"""Hooks whose arguments were others in Lightning 1: a table, and calls in the old order for models that ask for it."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.replaced_hooks import replace


class Hook(NamedTuple):
    """A row of the table: the arguments after self that the hook has ``today``, and those that it had (``old``)."""

    name: str
    today: tuple[str, ...]
    old: tuple[str, ...]


def _hook(name: str, today: str, old: str) -> Hook:
    return Hook(name, tuple(today.split()), tuple(old.split()))


HOOKS: tuple[Hook, ...] = (
    _hook("optimizer_step", "epoch batch_idx optimizer optimizer_closure",
          "epoch batch_idx optimizer optimizer_idx optimizer_closure on_tpu using_native_amp using_lbfgs"),
    _hook("optimizer_zero_grad", "epoch batch_idx optimizer", "epoch batch_idx optimizer optimizer_idx"),
    _hook("lr_scheduler_step", "scheduler metric", "scheduler optimizer_idx metric"),
    _hook("configure_gradient_clipping", "optimizer gradient_clip_val gradient_clip_algorithm",
          "optimizer optimizer_idx gradient_clip_val gradient_clip_algorithm"),
    _hook("on_before_optimizer_step", "optimizer", "optimizer optimizer_idx"),
    _hook("backward", "loss", "loss optimizer optimizer_idx"),
    _hook("transfer_batch_to_device", "batch device dataloader_idx", "batch device"),
    _hook("on_train_batch_start", "batch batch_idx", "batch batch_idx dataloader_idx"),
    _hook("on_train_batch_end", "outputs batch batch_idx", "outputs batch batch_idx dataloader_idx"),
    _hook("on_train_epoch_end", "", "outputs"),
    *(_hook(f"on_{stage}_batch_start", "batch batch_idx", "batch batch_idx dataloader_idx")
      for stage in ("validation", "test", "predict")),
    *(_hook(f"on_{stage}_batch_end", "outputs batch batch_idx", "outputs batch batch_idx dataloader_idx")
      for stage in ("validation", "test", "predict")),
    _hook("on_predict_epoch_end", "", "results"),
)
_BY_NAME = {row.name: row for row in HOOKS}


def _optimizer_index(trainer: Any, values: dict[str, Any]) -> int | None:
    optimizer = values["optimizer"] if "optimizer" in values else _optimizer(trainer, values)
    plain = getattr(optimizer, "optimizer", optimizer)
    return next((index for index, one in enumerate(trainer.optimizers) if one is plain),
                None if optimizer is None else 0)


def _optimizer(trainer: Any, values: dict[str, Any]) -> Any:
    """The optimizer of a backward: with manual optimization Lightning 1 gave None."""
    return trainer.optimizers[0] if trainer.lightning_module.automatic_optimization else None


# What only the old order has, from the trainer and the arguments of today.
_OLD_VALUES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "optimizer": _optimizer,
    "optimizer_idx": _optimizer_index,
    "on_tpu": lambda trainer, values: False,
    "using_native_amp": lambda trainer, values: "mixed" in str(trainer.precision),
    "using_lbfgs": lambda trainer, values: "LBFGS" in type(getattr(values["optimizer"], "optimizer", None)).__name__,
    "dataloader_idx": lambda trainer, values: 0,
    "outputs": lambda trainer, values: trainer.fit_loop._lightning1_outputs,
    "results": lambda trainer, values: trainer.predict_loop._predictions,
}


def _named(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], bool]:
    """The positional parameters of ``function`` that have a name, and whether ``*args`` takes more."""
    parameters = list(inspect.signature(function).parameters.values())
    named = [one for one in parameters if one.kind in (inspect.Parameter.POSITIONAL_ONLY,
                                                       inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    return named, any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)


def positional(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """The positional parameters of ``function``; None where it takes any number."""
    named, takes_more = _named(function)
    return None if takes_more else named


def _has_old_order(function: Callable[..., Any], row: Hook, leading: int) -> bool:
    named, takes_more = _named(function)
    parameters = named[leading:]
    if len(row.old) < len(row.today):
        return not takes_more and len(parameters) == len(row.old)
    if row.old[:len(row.today)] == row.today:  # more at the end, which does not matter where it has a default
        parameters = [one for one in parameters if one.default is inspect.Parameter.empty]
    names_old = any(one.name in row.old and one.name not in row.today for one in parameters)
    return len(parameters) > len(row.today) or (takes_more and names_old)


def _call(owner: Any, function: Callable[..., Any], name: str, leading: int, *args: Any, **kwargs: Any) -> Any:
    """Calls ``function`` in the old order; ``leading`` arguments (a callback's trainer, model) are first in both."""
    row = _BY_NAME[name]
    first, rest = args[:leading], args[leading:]
    trainer = first[0] if leading else owner.trainer
    values = dict(zip(row.today if len(rest) <= len(row.today) else row.old, rest))
    values |= {key: kwargs.pop(key) for key in row.today if key in kwargs}
    named, takes_more = _named(function)
    number = len(row.old) if takes_more else len(named) - leading
    given = [values[key] if key in values else _OLD_VALUES[key](trainer, values) for key in row.old[:number]]
    return function(*first, *given, **kwargs)


class OldOrder:
    """Lets model, data module and callbacks be called in the old order, where their hooks ask for it, until undo()."""

    def __init__(self, trainer: Any) -> None:
        self._undo: list[Callable[[], None]] = []
        for owner in filter(None, (trainer.lightning_module, trainer.datamodule)):
            self._adapt(owner, 0)
        for callback in trainer.callbacks:
            self._adapt(callback, 2)

    def _adapt(self, owner: Any, leading: int) -> None:
        for row in HOOKS:
            function = getattr(owner, row.name, None)
            if not callable(function) or not _has_old_order(function, row, leading):
                continue
            in_old_order = functools.partial(_call, owner, function, row.name, leading)
            self._undo.append(replace(owner, row.name, in_old_order))
            arguments = ", ".join(["self", *["trainer", "pl_module"][:leading], *row.today])
            say_once(f"{type(owner).__name__}.{row.name} has arguments of Lightning 1: write "
                     f"def {row.name}({arguments})")

    def undo(self) -> None:
        """Gives the hooks back as they were."""
        while self._undo:
            self._undo.pop()()


def is_adapted(owner: Any, name: str) -> bool:
    """Whether the hook ``name`` of ``owner`` is called in the old order now."""
    return getattr(vars(owner).get(name), "func", None) is _call


def check_training_step(model: Any) -> None:
    """Raises TypeError where training_step asks for what Lightning 2 cannot give."""
    parameters = inspect.signature(model.training_step).parameters
    name = type(model).__name__
    if "optimizer_idx" in parameters:
        raise TypeError(
            f"{name}.training_step has the argument optimizer_idx, and Lightning 2 calls it once for a batch. "
            "Write self.automatic_optimization = False in __init__, and in training_step, for each optimizer of "
            "self.optimizers(): optimizer.zero_grad(); self.manual_backward(loss); optimizer.step()")
    if "hiddens" in parameters or getattr(model, "truncated_bptt_steps", None):
        raise TypeError(
            f"{name} asks for truncated backpropagation through time (hiddens, truncated_bptt_steps), and Lightning 2 "
            "has none. Write self.automatic_optimization = False in __init__, and split the batch in training_step")
