"""The arguments of Lightning 1's Trainer, and what today's Trainer is given for them: a table of functions.

Each function gets a Call and the value, puts today's arguments into the Call, and returns what the script should say
today. A value that cannot be mapped raises ValueError. The order matters: later rows see what earlier ones chose.
"""

import dataclasses
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from tutti.compat.lightning1 import devices
from tutti.compat.deprecation import say_once
from tutti.compat.lightning1.settings import Settings


@dataclasses.dataclass
class Call:
    """One Trainer(…): what it was given, and the arguments, callbacks and settings that come of it."""

    package: ModuleType
    given: dict[str, Any]
    today: dict[str, Any] = dataclasses.field(default_factory=dict)
    callbacks: list[Any] = dataclasses.field(default_factory=list)
    settings: Settings = dataclasses.field(default_factory=Settings)

    def says(self, **arguments: Any) -> str:
        """Gives today's Trainer these arguments, and returns how a script writes them."""
        self.today.update(arguments)
        return devices.written(**arguments)

    def adds(self, name: str, **arguments: Any) -> str:
        """Adds the callback ``name`` of the package, and returns how a script writes that."""
        self.callbacks.append(getattr(self.package.callbacks, name)(**arguments))
        listed = ", ".join(f"{key}={devices.shown(value)}" for key, value in arguments.items())
        return f"Trainer(callbacks=[{name}({listed})])"

    def given_callbacks(self) -> list[Any]:
        """The callbacks that the script has passed."""
        given = self.given.get("callbacks")
        return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


class Argument(NamedTuple):
    """A row of the table. ``default`` was the value in Lightning 1; from_argparse_args leaves it out."""

    name: str
    default: Any
    apply: Callable[[Call, Any], str]
    types: tuple[type, ...] = ()  # of the value on a command line


LEAVE_OUT = "leave the argument out"


def _renamed(new: str, convert: Callable[[Any], Any] = lambda value: value) -> Callable[[Call, Any], str]:
    return lambda call, value: call.says(**{new: convert(value)})


def _only(harmless: tuple[Any, ...], name: str, today: str) -> Callable[[Call, Any], str]:
    """An argument that Lightning 2 lacks: ``harmless`` values change nothing, every other is an error."""

    def apply(call: Call, value: Any) -> str:
        if value in harmless:
            return LEAVE_OUT
        raise ValueError(
            f"Trainer({name}={value!r}) is of Lightning 1, and Lightning 2 has nothing like it. Today: {today}")

    return apply


def _amp_backend(call: Call, value: Any) -> str:
    if value == "apex":
        raise ValueError(
            'Trainer(amp_backend="apex"): Lightning 2 does not use apex. Today: Trainer(precision="16-mixed")')
    return LEAVE_OUT


def _resume_from_checkpoint(call: Call, value: Any) -> str:
    if value is None:
        return LEAVE_OUT
    call.settings.ckpt_path = value
    return f"trainer.fit(model, ckpt_path={devices.shown(value)})"


def _weights_summary(call: Call, value: Any) -> str:
    if value not in ("top", "full", None):
        raise ValueError(f'Trainer(weights_summary={value!r}): expected "top", "full" or None. Today: '
                         "Trainer(callbacks=[ModelSummary(max_depth=…)])")
    if value == "full":
        return call.adds("ModelSummary", max_depth=-1)
    return call.says(enable_model_summary=value == "top")


def _progress_bar(call: Call, value: Any) -> str:
    """progress_bar_refresh_rate and process_position: one bar has both."""
    rate, position = call.given.get("progress_bar_refresh_rate"), call.given.get("process_position") or 0
    if rate == 0:
        return call.says(enable_progress_bar=False)
    if rate is None and position == 0:
        return LEAVE_OUT
    arguments = {"refresh_rate": 1 if rate is None else rate} | ({"process_position": position} if position else {})
    call.callbacks = [one for one in call.callbacks if not isinstance(one, call.package.callbacks.TQDMProgressBar)]
    return call.adds("TQDMProgressBar", **arguments)


def _checkpoint_callback(call: Call, value: Any) -> str:
    if isinstance(value, call.package.callbacks.Checkpoint):
        call.callbacks.append(value)
        return f"Trainer(callbacks=[{devices.shown(value)}])"
    return call.says(enable_checkpointing=True if value is None else bool(value))


def _early_stop_callback(call: Call, value: Any) -> str:
    if isinstance(value, call.package.callbacks.EarlyStopping):
        call.callbacks.append(value)
        return f"Trainer(callbacks=[{devices.shown(value)}])"
    today = 'Trainer(callbacks=[EarlyStopping(monitor="val_loss")])'
    return _only((None, False), "early_stop_callback", today)(call, value)


def _flush_logs(call: Call, value: Any) -> str:
    loggers = call.given.get("logger")
    for logger in loggers if isinstance(loggers, (list, tuple)) else [loggers]:
        if isinstance(logger, call.package.loggers.CSVLogger):
            logger._flush_logs_every_n_steps = value
    return f"CSVLogger(…, flush_logs_every_n_steps={value!r}) or TensorBoardLogger(…, flush_secs=…)"


def _log_gpu_memory(call: Call, value: Any) -> str:
    return LEAVE_OUT if value is None else call.adds("DeviceStatsMonitor")


def _terminate_on_nan(call: Call, value: Any) -> str:
    return call.says(detect_anomaly=True) if value else LEAVE_OUT


def _stochastic_weight_avg(call: Call, value: Any) -> str:
    if not value:
        return LEAVE_OUT
    from tutti.compat.lightning1 import own_callbacks

    call.callbacks.append(own_callbacks.weight_averaging_at_the_optimizers_rate(call.package))
    return "Trainer(callbacks=[StochasticWeightAveraging(swa_lrs=…)]) with the learning rate of your optimizer"


def _track_grad_norm(call: Call, value: Any) -> str:
    if value in (-1, "-1", None):
        return LEAVE_OUT
    from tutti.compat.lightning1 import own_callbacks

    call.callbacks.append(own_callbacks.gradient_norms(call.package, value))
    return (f"self.log_dict(grad_norm(self, norm_type={value!r})) in on_before_optimizer_step(self, optimizer), with "
            f"grad_norm of {call.package.__name__}.utilities")


def _weights_save_path(call: Call, value: Any) -> str:
    if value is None or call.today.get("enable_checkpointing") is False:
        return LEAVE_OUT
    kind = call.package.callbacks.ModelCheckpoint
    checkpoints = [one for one in (*call.given_callbacks(), *call.callbacks) if isinstance(one, kind)]
    if not checkpoints:
        return call.adds("ModelCheckpoint", dirpath=os.fspath(value))
    for one in checkpoints:
        one.dirpath = one.dirpath or kind(dirpath=os.fspath(value)).dirpath
    return f"ModelCheckpoint(dirpath={devices.shown(os.fspath(value))})"


def _prepare_data_per_node(call: Call, value: Any) -> str:
    call.settings.prepare_data_per_node = value
    return f"self.prepare_data_per_node = {value!r} in the LightningModule and the LightningDataModule"


def _move_metrics_to_cpu(call: Call, value: Any) -> str:
    call.settings.outputs_to_cpu = bool(value)
    return "value.cpu() for what you keep for the end of the epoch" if value else LEAVE_OUT


def _auto_lr_find(call: Call, value: Any) -> str:
    call.settings.auto_lr_find = value
    return "Tuner(trainer).lr_find(model) in place of trainer.tune(model)" if value else LEAVE_OUT


def _auto_scale_batch_size(call: Call, value: Any) -> str:
    mode = "power" if value is True else value
    if mode not in ("power", "binsearch", None, False):
        raise ValueError(f'Trainer(auto_scale_batch_size={value!r}): expected a bool, "power" or "binsearch". Today: '
                         'Tuner(trainer).scale_batch_size(model, mode="power")')
    call.settings.auto_scale_batch_size = mode or None
    if not mode:
        return LEAVE_OUT
    return f'Tuner(trainer).scale_batch_size(model, mode="{mode}") in place of trainer.tune(model)'


def _max_steps(call: Call, value: Any) -> str:
    """Also Lightning 2's own argument: None was "no limit" once."""
    return call.says(max_steps=-1)


def _accumulate_grad_batches(call: Call, value: Any) -> str:
    """Also Lightning 2's own argument: Lightning 1 took a dict as well."""
    return call.adds("GradientAccumulationScheduler", scheduling=value)


def _profiler(call: Call, value: Any) -> str:
    """Also Lightning 2's own argument: Lightning 1 took a bool as well."""
    return call.says(profiler="simple" if value else None)


_TBPTT = "split the batch in training_step, with self.automatic_optimization = False"

ARGUMENTS: tuple[Argument, ...] = (
    Argument("distributed_backend", None, devices.accelerator_or_strategy("distributed_backend"), (str,)),
    Argument("gpus", None, devices.gpus, (int, str)),
    Argument("tpu_cores", None, devices.tpu_cores, (int, str)),
    Argument("hpus", None, devices.hpus, (int,)),
    Argument("ipus", None, _only((None, 0), "ipus", "another accelerator, since Lightning has no IPU any more"),
             (int,)),
    Argument("num_processes", 1, devices.num_processes, (int,)),
    Argument("auto_select_gpus", False, devices.auto_select_gpus, (bool,)),
    Argument("replace_sampler_ddp", True, _renamed("use_distributed_sampler"), (bool,)),
    Argument("amp_backend", "native", _amp_backend, (str,)),
    Argument("amp_level", None, lambda call, value: LEAVE_OUT, (str,)),
    Argument("resume_from_checkpoint", None, _resume_from_checkpoint, (str,)),
    Argument("weights_summary", "top", _weights_summary, (str,)),
    Argument("progress_bar_refresh_rate", None, _progress_bar, (int,)),
    Argument("process_position", 0, _progress_bar, (int,)),
    Argument("checkpoint_callback", True, _checkpoint_callback, (bool,)),
    Argument("early_stop_callback", False, _early_stop_callback, (bool,)),
    Argument("flush_logs_every_n_steps", 100, _flush_logs, (int,)),
    Argument("log_gpu_memory", None, _log_gpu_memory, (str,)),
    Argument("terminate_on_nan", False, _terminate_on_nan, (bool,)),
    Argument("stochastic_weight_avg", False, _stochastic_weight_avg, (bool,)),
    Argument("track_grad_norm", -1, _track_grad_norm, (int, float, str)),
    Argument("weights_save_path", None, _weights_save_path, (str,)),
    Argument("truncated_bptt_steps", None, _only((None, 0), "truncated_bptt_steps", _TBPTT), (int,)),
    Argument("prepare_data_per_node", True, _prepare_data_per_node, (bool,)),
    Argument("reload_dataloaders_every_epoch", False, _renamed("reload_dataloaders_every_n_epochs", int), (bool,)),
    Argument("move_metrics_to_cpu", False, _move_metrics_to_cpu, (bool,)),
    Argument(
        "multiple_trainloader_mode", "max_size_cycle",
        _only(("max_size_cycle",), "multiple_trainloader_mode",
              'CombinedLoader(loaders, mode="min_size") for the training data, from the package\'s utilities'), (str,)),
    Argument("auto_lr_find", False, _auto_lr_find, (bool, str)),
    Argument("auto_scale_batch_size", False, _auto_scale_batch_size, (bool, str)),
    Argument(
        "automatic_optimization", True,
        _only((True, None), "automatic_optimization", "self.automatic_optimization = False in the LightningModule"),
        (bool,)),
    Argument("enable_pl_optimizer", None, lambda call, value: LEAVE_OUT, (bool,)),
)
# Arguments that both have, where Lightning 1 took values that Lightning 2 does not: name, is it one?, what then.
VALUES: tuple[tuple[str, Callable[[Any], bool], Callable[[Call, Any], str]], ...] = (
    ("accelerator", devices.is_old_accelerator, devices.accelerator_or_strategy("accelerator")),
    ("strategy", devices.is_old_strategy, devices.strategy),
    ("plugins", devices.has_old_plugins, devices.plugins),
    ("devices", lambda value: value is None, lambda call, value: LEAVE_OUT),
    ("max_steps", lambda value: value is None, _max_steps),
    ("accumulate_grad_batches", lambda value: isinstance(value, dict), _accumulate_grad_batches),
    ("profiler", lambda value: isinstance(value, bool), _profiler),
)


def for_today(package: ModuleType, given: dict[str, Any]) -> tuple[dict[str, Any], Settings]:
    """The arguments for today's Trainer in place of ``given``, and the settings that it has no argument for."""
    call = Call(package, given)
    old = {name for name, is_old, _ in VALUES if name in given and is_old(given[name])}
    old |= {row.name for row in ARGUMENTS if row.name in given}
    call.today = {name: value for name, value in given.items() if name not in old}
    rows = [(name, apply) for name, _, apply in VALUES] + [(row.name, row.apply) for row in ARGUMENTS]
    for name, apply in rows:
        if name in old:
            today = apply(call, given[name])
            say_once(f"Trainer({name}={devices.shown(given[name])}) is of Lightning 1: {_verb(today)}")
    if call.today.get("strategy", "auto") == "auto" and devices.by_mpirun():
        say_once(f"Trainer() without a strategy under mpirun is of Lightning 1: write {call.says(strategy='horovod')}")
    if call.callbacks:
        call.today["callbacks"] = call.given_callbacks() + call.callbacks
    return call.today, call.settings


def _verb(today: str) -> str:
    return today if today == LEAVE_OUT else f"write {today}"
