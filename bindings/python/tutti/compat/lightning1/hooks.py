"""Hooks of LightningModule that Lightning 2 has dropped, called where Lightning 1 called them."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from tutti.compat.lightning1 import callback_states, hook_signatures, old_calls, returned_logs, train_mode
from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.old_calls import overridden
from tutti.compat.lightning1.replaced_hooks import replace
from tutti.compat.lightning1.settings import settings_of

# Each is called with what the step returned, and may return something in its place.
STEP_ENDS = {
    "training_step_end": "training_step",
    "validation_step_end": "validation_step",
    "test_step_end": "test_step"
}
# Each is called with a list of what the step returned in an epoch: the step, and the hook to override today.
EPOCH_ENDS = {
    "training_epoch_end": ("training_step", "on_train_epoch_end"),
    "validation_epoch_end": ("validation_step", "on_validation_epoch_end"),
    "test_epoch_end": ("test_step", "on_test_epoch_end"),
}
# Hooks of models and callbacks without arguments: the hooks of today before (or after) which each was called.
RENAMED = {
    "on_epoch_start": ("before", "on_train_epoch_start", "on_validation_epoch_start", "on_test_epoch_start"),
    "on_epoch_end": ("after", "on_train_epoch_end", "on_validation_epoch_end", "on_test_epoch_end"),
    "on_batch_start": ("before", "on_train_batch_start"),
    "on_batch_end": ("after", "on_train_batch_end"),
    "on_pretrain_routine_start": ("after", "on_fit_start"),
    "on_pretrain_routine_end": ("after", "on_fit_start"),
}
# Hooks that nothing calls any more, and where their work belongs today.
NOT_CALLED = {
    "on_init_start": "the code before Trainer(…)",
    "on_init_end": "the code after Trainer(…)",
    "on_before_accelerator_backend_setup": "setup",
    "on_post_move_to_device": "on_fit_start",
    "on_keyboard_interrupt": "on_exception",
    "on_hpc_save": "on_save_checkpoint",
    "on_hpc_load": "on_load_checkpoint",
    "tbptt_split_batch": "training_step, with self.automatic_optimization = False",
    "get_progress_bar_dict": "get_metrics of a callback derived from TQDMProgressBar",
    "on_train_dataloader": "train_dataloader",
    "on_val_dataloader": "val_dataloader",
    "on_test_dataloader": "test_dataloader",
    "on_predict_dataloader": "predict_dataloader",
    "log_grad_norm": "on_before_optimizer_step, which logs with self.log_dict",
    "add_to_queue": "on_fit_end, which writes what the main process needs to a file",
    "get_from_queue": "the code after trainer.fit, which reads what on_fit_end wrote to a file",
}


def _kept(trainer: Any, output: Any) -> Any:
    """``output`` of a step without its graph, as it waits for the end of the epoch."""
    import torch
    from lightning_utilities.core.apply_func import apply_to_collection

    to_cpu = settings_of(trainer).outputs_to_cpu
    return apply_to_collection(output, torch.Tensor, lambda one: one.detach().cpu() if to_cpu else one.detach())


def _wants_training_outputs(trainer: Any) -> bool:
    model = trainer.lightning_module
    return overridden(model, "training_epoch_end") or any(
        hook_signatures.is_adapted(owner, "on_train_epoch_end") for owner in (model, *trainer.callbacks))


def _call_step_end(package: ModuleType, trainer: Any, name: str, output: Any) -> Any:
    """What name_end makes of ``output``. Strategies that gather the outputs of devices (dp, ddp2) have called it."""
    end = f"{name}_end"
    if not overridden(trainer.lightning_module, end) or getattr(trainer.strategy, "calls_step_end", False):
        return output
    changed = package.trainer.call._call_lightning_module_hook(trainer, end, output)
    return output if changed is None else changed


def _call_epoch_end(package: ModuleType, trainer: Any, name: str, outputs: list[Any]) -> Any:
    """What the hook ``name`` returns for ``outputs``; metrics in it are logged."""
    result = package.trainer.call._call_lightning_module_hook(trainer, name, outputs)
    if returned_logs.has_logs(result):
        returned_logs.log(trainer.lightning_module, name, result)
    return result


def _patch_calls(package: ModuleType) -> None:
    """Every hook of a model, a callback or a strategy is called through these three functions."""
    call = package.trainer.call
    strategy_hook, module_hook, callback_hooks = (call._call_strategy_hook, call._call_lightning_module_hook,
                                                  call._call_callback_hooks)

    @functools.wraps(strategy_hook)
    def call_strategy_hook(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        output = strategy_hook(trainer, hook_name, *args, **kwargs)
        if hook_name in STEP_ENDS.values():
            output = _call_step_end(package, trainer, hook_name, output)
            if hook_name != "training_step":
                trainer._lightning1_output = output  # for evaluation_step, which sees it nowhere else
            elif returned_logs.has_logs(output):
                returned_logs.log(trainer.lightning_module, hook_name, output)
        return output

    @functools.wraps(module_hook)
    def call_lightning_module_hook(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        for old in _old_names("before", hook_name):
            if overridden(trainer.lightning_module, old):
                module_hook(trainer, old)
        result = module_hook(trainer, hook_name, *args, **kwargs)
        for old in _old_names("after", hook_name):
            if overridden(trainer.lightning_module, old):
                module_hook(trainer, old)
        return result

    @functools.wraps(callback_hooks)
    def call_callback_hooks(trainer: Any, hook_name: str, *args: Any, **kwargs: Any) -> None:
        _call_old_callbacks(trainer, "before", hook_name, kwargs)
        callback_hooks(trainer, hook_name, *args, **kwargs)
        _call_old_callbacks(trainer, "after", hook_name, kwargs)

    call._call_strategy_hook = call_strategy_hook
    call._call_lightning_module_hook = call_lightning_module_hook
    call._call_callback_hooks = call_callback_hooks


@functools.cache
def _old_names(side: str, hook_name: str) -> tuple[str, ...]:
    return tuple(old for old, (when, *hooks) in RENAMED.items() if when == side and hook_name in hooks)


def _call_old_callbacks(trainer: Any, side: str, hook_name: str, kwargs: dict[str, Any]) -> None:
    if kwargs.get("monitoring_callbacks") is True:  # the second call of on_train_epoch_end
        return
    for old in _old_names(side, hook_name):
        for callback in trainer.callbacks:
            if overridden(callback, old):
                getattr(callback, old)(trainer, trainer.lightning_module)


def _patch_training(package: ModuleType) -> None:
    """Keeps what training steps return, and gives it to training_epoch_end at the end of the epoch."""
    fit_loop = package.loops.fit_loop._FitLoop
    start, end = fit_loop.on_advance_start, fit_loop.on_advance_end

    @functools.wraps(start)
    def on_advance_start(self: Any) -> None:
        self._lightning1_outputs = []
        start(self)

    @functools.wraps(end)
    def on_advance_end(self: Any) -> None:
        trainer = self.trainer
        if overridden(trainer.lightning_module, "training_epoch_end"):
            trainer._logger_connector.epoch_end_reached()
            result = _call_epoch_end(package, trainer, "training_epoch_end", list(self._lightning1_outputs))
            if result is not None and not returned_logs.has_logs(result):
                raise ValueError(f"{type(trainer.lightning_module).__name__}.training_epoch_end returned a "
                                 f"{type(result).__name__}; log with self.log, and return nothing")
        end(self)
        self._lightning1_outputs = []

    fit_loop.on_advance_start, fit_loop.on_advance_end = on_advance_start, on_advance_end
    for loop in package.loops.optimization._AutomaticOptimization, package.loops.optimization._ManualOptimization:
        loop.run = _keeping_output(loop.run)


def _keeping_output(run: Callable[..., Any]) -> Callable[..., Any]:

    @functools.wraps(run)
    def run_and_keep(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = run(self, *args, **kwargs)
        if output and _wants_training_outputs(self.trainer):  # empty: the step was skipped
            self.trainer.fit_loop._lightning1_outputs.append(_kept(self.trainer, output))
        return output

    return run_and_keep


def _patch_evaluation(package: ModuleType) -> None:
    """Keeps what validation and test steps return, and gives it to *_epoch_end: a list for each of several loaders."""
    loop = package.loops.evaluation_loop._EvaluationLoop
    start, step, end = loop._on_evaluation_epoch_start, loop._evaluation_step, loop._on_evaluation_epoch_end

    @functools.wraps(start)
    def on_evaluation_epoch_start(self: Any, *args: Any, **kwargs: Any) -> None:
        self._lightning1_outputs = [[] for _ in range(self.num_dataloaders if self._is_sequential else 1)]
        start(self, *args, **kwargs)

    @functools.wraps(step)
    def evaluation_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int, dataloader_iter: Any) -> None:
        step(self, batch, batch_idx, dataloader_idx, dataloader_iter)
        output, self.trainer._lightning1_output = self.trainer._lightning1_output, None
        if output is not None and overridden(self.trainer.lightning_module, _epoch_end_of(self.trainer)):
            self._lightning1_outputs[dataloader_idx if self._is_sequential else 0].append(_kept(self.trainer, output))

    @functools.wraps(end)
    def on_evaluation_epoch_end(self: Any) -> None:
        trainer = self.trainer
        outputs, self._lightning1_outputs = self._lightning1_outputs, []
        if overridden(trainer.lightning_module, _epoch_end_of(trainer)):
            _call_epoch_end(package, trainer, _epoch_end_of(trainer), outputs[0] if len(outputs) == 1 else outputs)
        end(self)

    loop._on_evaluation_epoch_start = on_evaluation_epoch_start
    loop._evaluation_step = evaluation_step
    loop._on_evaluation_epoch_end = on_evaluation_epoch_end


def _epoch_end_of(trainer: Any) -> str:
    return "test_epoch_end" if trainer.testing else "validation_epoch_end"


def _patch_log_options(package: ModuleType) -> None:
    """Lets self.log be called in the old hooks, with the defaults that it had there."""
    functions = package.trainer.connectors.logger_connector.fx_validator._FxValidator.functions
    for name, step in STEP_ENDS.items():
        functions[name] = functions[step]
    for name, (_, hook) in EPOCH_ENDS.items():
        functions[name] = functions[hook]
    for name, (_, hook, *_) in RENAMED.items():
        functions[name] = functions[hook]


def _patch_check(package: ModuleType) -> None:
    """Lightning's check of a model, before each run: *_epoch_end is allowed, and hooks get their old arguments."""
    module = package.trainer.trainer
    check = module._verify_loop_configurations

    @functools.wraps(check)
    def verify_loop_configurations(trainer: Any) -> None:
        model = trainer.lightning_module
        _say_what_is_old(model, trainer.callbacks)
        _say_what_is_not_called([model, trainer.datamodule, *trainer.callbacks])
        hook_signatures.check_training_step(model)
        with contextlib.ExitStack() as undo:
            for name in EPOCH_ENDS:
                undo.callback(replace(model, name, None))
            check(trainer)
        trainer._lightning1_old_order = hook_signatures.OldOrder(trainer)

    module._verify_loop_configurations = verify_loop_configurations


def _say_what_is_old(model: Any, callbacks: Iterable[Any]) -> None:
    """One line for each hook that Lightning 2 does not have, and that is called all the same."""
    for name, (step, hook) in EPOCH_ENDS.items():
        if overridden(model, name):
            say_once(
                f"{type(model).__name__}.{name}(outputs) is of Lightning 1: let {step} keep what it returns in a list "
                f"of the model, and write def {hook}(self)")
    for name, step in STEP_ENDS.items():
        if overridden(model, name):
            say_once(f"{type(model).__name__}.{name}(outputs) is of Lightning 1: do its work at the end of {step}")
    for owner in (model, *callbacks):
        for name, (_, *hooks) in RENAMED.items():
            if overridden(owner, name):
                say_once(f"{type(owner).__name__}.{name} is of Lightning 1: write {' and '.join(hooks)}")


def _say_what_is_not_called(owners: Iterable[Any]) -> None:
    """One line for each hook of ``owners`` that nothing calls."""
    for owner in owners:
        for name, place in NOT_CALLED.items():
            if overridden(owner, name):
                say_once(
                    f"{type(owner).__name__}.{name} is of Lightning 1, and is not called: its work belongs to {place}")


def _patch_bases(package: ModuleType) -> None:
    """Lets ``super()`` find the dropped hooks."""
    for name in STEP_ENDS:
        setattr(package.LightningModule, name, old_calls.returns_outputs)
    for name in EPOCH_ENDS:
        setattr(package.LightningModule, name, old_calls.does_nothing)
    for name in RENAMED:
        setattr(package.LightningModule, name, old_calls.does_nothing)
        setattr(package.Callback, name, old_calls.does_nothing)


def patch(package: ModuleType) -> None:
    """Lets ``package`` call the hooks of Lightning 1."""
    old_calls.patch(package)
    callback_states.patch(package)
    train_mode.patch(package)
    _patch_bases(package)
    _patch_log_options(package)
    _patch_calls(package)
    _patch_training(package)
    _patch_evaluation(package)
    _patch_check(package)
