"""Training by a strategy of Tutti inside Lightning's Trainer: what Tutti adds to Lightning's own DDPStrategy."""

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

import tutti.torch
from tutti.lightning import _averages, _batches, _environment, _failures, _finetuning, _first_weights, _names, _states
from tutti.lightning._scaler import scale_of, shared_scaler
from tutti.lightning._signals import AgreedSignals
from tutti.lightning.qadam import check_clipping
from tutti.torch.checks import check_flag
from tutti.torch.strategy_names import with_options


class SyncsBatchNorm:
    """Lightning's ``sync_batchnorm=True`` on the CPU."""

    def apply(self, model: torch.nn.Module) -> torch.nn.Module:
        return tutti.torch.convert_sync_batchnorm(model)

    def revert(self, model: torch.nn.Module) -> torch.nn.Module:
        return tutti.torch.revert_sync_batchnorm(model)


class Remade:
    """Keeps the arguments of an object, to make the object anew of the class for another Lightning."""

    classes: Any  # the module of the class: the strategies for the same Lightning

    def __new__(cls, *arguments: Any, **keywords: Any) -> Any:
        made = super().__new__(cls)
        made.given = (arguments, keywords)
        return made


class TuttiStrategy(Remade):
    """Data parallel training by a strategy of Tutti, chosen by name.

        Trainer(strategy=TuttiStrategy("bytegrad", codec="bf16"), accelerator="cpu", devices=4)
        Trainer(strategy="tutti:bytegrad,codec=bf16", accelerator="cpu", devices=4)        # the same

    ``algorithm`` is a strategy name (docs/algorithms.md). ``options`` are options of the strategy, and of torch's
    DistributedDataParallel (``find_unused_parameters``, ``static_graph``, ``bucket_cap_mb``, …; strategies that
    exchange weights or momentum take ``find_unused_parameters``, ``bucket_cap_mb`` and ``broadcast_buffers`` of them).
    ``flatten`` lets gradients be views of the buckets of stock DistributedDataParallel, where the model trains there, and
    has no effect elsewhere. ``autotune`` tries in the first steps how gradients travel fastest (docs/autotuning.md); None:
    as ``TUTTI_AUTOTUNE`` says. The other arguments are those of Lightning's DDPStrategy, from which this class is derived.

    Strategies that exchange gradients train in stock DistributedDataParallel; the others, and with ``autotune`` all, in
    :class:`tutti.torch.DistributedDataParallel`. Where weights differ between ranks while they train, the ranks agree
    on their average before a validation, before a checkpoint and at the end of ``fit``. A checkpoint holds the state of
    the strategy of every rank; it may be resumed on another number of ranks. ValueError or TypeError names an option
    that is wrong.
    """

    def __init__(
        self,
        algorithm: Any = "gradient_allreduce",
        flatten: bool = True,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        *,
        process_group_backend: str | None = "tutti",
        timeout: timedelta | None = default_pg_timeout,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        autotune: bool | None = None,
        **options: Any,
    ) -> None:
        for name in ("ddp_comm_state", "ddp_comm_hook", "ddp_comm_wrapper", "model_averaging_period"):
            if name in options:
                raise ValueError(f"{type(self).__name__}: {name} is for Lightning's DDPStrategy; here algorithm says how "
                                 "gradients are exchanged")
        _environment.check_backend(self, process_group_backend)
        _environment.check_timeout(self, timeout)
        check_flag("flatten", flatten)
        algorithm, self._autotune = _names.take_autotune(algorithm, autotune)
        # As the user says it: a number of warm-up steps that the name leaves out is that of the optimizer.
        self._named, of_ddp = _names.read(algorithm, options)
        self.exchanged_by = tutti.torch.parse_strategy(self._named)
        of_ddp.setdefault("gradient_as_bucket_view", flatten)
        super().__init__(
            accelerator=accelerator, parallel_devices=parallel_devices, cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io, precision_plugin=precision_plugin, process_group_backend=process_group_backend,
            timeout=timeout, start_method=start_method, **of_ddp)
        self._exchange: tutti.torch.GradientExchange | None = None
        self._signals: AgreedSignals | None = None
        self._first_callback: Any = None
        self._scaler: torch.amp.GradScaler | None = None  # the user's, while another one is in its place
        self._last_state: dict[str, Any] | None = None  # at the end of the last fit
        self._is_alone = False  # an exception has ended the training: other ranks may make no more collectives
        self._optimizers_made = False
        self._groups_of_momentum: int | None = None  # the number of QAdam's groups when the model was wrapped
        self._validation_begins = False

    @property
    def algorithm(self) -> str:
        """The strategy name in full, with every option; that of the model while it trains."""
        return self.exchanged_by.name if self._wrapper is None else self._wrapper.strategy

    @property
    def exchanges_gradients(self) -> bool:
        """Whether the ranks exchange gradients."""
        return self.exchanged_by.exchanges == "gradients"

    @property
    def _exchanges_momentum(self) -> bool:
        return self.exchanged_by.exchanges == "momentum"

    @property
    def _exchanges_weights(self) -> bool:
        return self.exchanged_by.exchanges.startswith("weight")  # or differences of weights

    @property
    def autotunes(self) -> bool:
        """Whether the first steps try how gradients travel fastest, which stock DistributedDataParallel cannot."""
        return _names.autotunes(self._autotune)

    @property
    def _wrapper(self) -> tutti.torch.DistributedDataParallel | None:
        """The model while it trains in Tutti's own DistributedDataParallel."""
        return self.model if isinstance(self.model, tutti.torch.DistributedDataParallel) else None

    # ---- the beginning and the end ----

    def setup_environment(self) -> None:
        self._is_alone = False  # hooks before `setup`, such as the module's own, make collectives already
        super().setup_environment()

    def setup_distributed(self) -> None:
        _environment.make_group(self.cluster_environment, self._get_process_group_backend(), self._timeout,
                                self.root_device)
        super().setup_distributed()
        if dist.get_backend() != self._get_process_group_backend():
            raise ValueError(f"{type(self).__name__}: the process group runs on {dist.get_backend()}, made by an earlier "
                             "Trainer or by the script, and this strategy needs tutti: call "
                             "torch.distributed.destroy_process_group() before, or start another process")
        _failures.see_group()

    def configure_ddp(self) -> None:
        if self.exchanges_gradients and not self.autotunes:
            with self._exchanging_what_is_unfrozen_later():
                super().configure_ddp()
                if self._exchange is None:  # the DistributedDataParallel of a module that overrides configure_ddp
                    self._register_ddp_hooks()
            return
        # The optimizers come before the wrapper: the number of warm-up steps is an argument of QAdamOptimizer, and what
        # configure_optimizers freezes, unfreezes or registers counts. One that copies weights copies the same on all ranks.
        _first_weights.make_equal(self.lightning_module, self._ddp_kwargs.get("broadcast_buffers", True))
        super().setup_optimizers(self.lightning_module.trainer)
        self._optimizers_made = True
        self.model = self._wrap(self.lightning_module)
        # Lightning's own view of an optimizer is a copy of its attributes, which QAdam has got more of meanwhile.
        self.optimizers = self.optimizers
        self._scaler = getattr(self.precision_plugin, "scaler", None)
        if self._scaler is not None:
            self.precision_plugin.scaler = shared_scaler(self.model, self._scaler)

    def setup_optimizers(self, trainer: Any) -> None:
        if not self._optimizers_made:
            super().setup_optimizers(trainer)
        self._optimizers_made = False

    def _register_ddp_hooks(self) -> None:
        # Lightning's own function registers hooks of torch, on GPUs alone.
        self._exchange = tutti.torch.register(self.model, self.exchanged_by.name)

    @contextlib.contextmanager
    def _exchanging_what_is_unfrozen_later(self) -> Iterator[None]:
        """Lets the wrapper that is made inside exchange what a callback has frozen for the first epochs, too."""
        frozen = _finetuning.frozen_by_callbacks(self.lightning_module.trainer, self.classes.PACKAGE)
        if self._exchanges_momentum:  # what is exchanged is what QAdam has from the start to the end
            frozen = _finetuning.of_optimizers(self.optimizers, frozen)
        given = self._ddp_kwargs
        if frozen:
            self._ddp_kwargs = {**given, "find_unused_parameters": True}
        try:
            with _finetuning.trained(frozen):
                yield
        finally:
            self._ddp_kwargs = given  # the next fit may train everything

    def _wrap(self, module: torch.nn.Module) -> tutti.torch.DistributedDataParallel:
        if self._exchanges_momentum:
            self._check_qadam()
            self._check_clipping_of_momentum()
        with self._exchanging_what_is_unfrozen_later():
            options = _names.wrapper_options(self._ddp_kwargs, self.exchanged_by.name)
            wrapper = tutti.torch.DistributedDataParallel(
                module, self.optimizers, self._named, autotune=self.autotunes, **options)
        self.exchanged_by = tutti.torch.parse_strategy(wrapper.strategy)
        self._groups_of_momentum = len(self.optimizers[0].param_groups) if self._exchanges_momentum else None
        return wrapper

    def _check_qadam(self) -> None:
        """MisconfigurationException where the module or the Trainer has what ``qadam`` cannot train with."""
        mistake = None
        if len(self.optimizers) != 1 or not isinstance(self.optimizers[0], tutti.torch.QAdam):
            found = ", ".join(type(optimizer).__name__ for optimizer in self.optimizers) or "none"
            mistake = (f"qadam can only accept one QAdamOptimizer, and configure_optimizers returned {found}: return "
                       "tutti.lightning.QAdamOptimizer(self.parameters(), lr=…, warmup_steps=…)")
        elif len(self.lr_scheduler_configs) > 1:
            mistake = f"qadam can only accept one LR scheduler, and there are {len(self.lr_scheduler_configs)}"
        elif getattr(self.precision_plugin, "scaler", None) is not None:
            mistake = "qadam works on momentum, which has no loss scale: use precision=\"bf16-mixed\""
        elif self.lightning_module.trainer.gradient_clip_val:
            mistake = "qadam works on momentum, which clipping would change: leave gradient_clip_val out"
        if mistake is not None:
            raise self.classes.MisconfigurationException(mistake)

    def _check_clipping_of_momentum(self) -> None:
        """Lets the precision plugin, which clips for all hooks and functions of Lightning, check first, until ``teardown``."""
        clip = self.precision_plugin.clip_gradients

        @functools.wraps(clip)
        def clip_checked(optimizer: Any, clip_val: float = 0.0, *arguments: Any, **keywords: Any) -> None:
            if clip_val > 0:  # Lightning calls the function in each step
                check_clipping(self.optimizers[0])
            clip(optimizer, clip_val, *arguments, **keywords)

        self.precision_plugin.clip_gradients = clip_checked

    def _check_groups_of_momentum(self) -> None:
        """ValueError where a callback, such as BackboneFinetuning, has given QAdam parameters since the model was wrapped."""
        if self._groups_of_momentum not in (None, len(self.optimizers[0].param_groups)):
            raise ValueError("qadam: a group of parameters was added to the optimizer during fit, and qadam exchanges what "
                             "the optimizer had at the start: give QAdamOptimizer all parameters in configure_optimizers, "
                             "also those that are frozen until later")

    def setup(self, trainer: Any) -> None:
        if trainer.state.fn == "fit":
            self._last_state = None
        # torch's own layers train on GPUs alone.
        if type(self._layer_sync).__name__ == "TorchSyncBatchNorm" and self.root_device.type == "cpu":
            self._layer_sync = self.classes.TuttiSyncBatchNorm()
        self._first_callback = self.classes.TellsOthersFirst()
        trainer.callbacks.insert(0, self._first_callback)
        super().setup(trainer)
        if trainer.state.fn == "fit" and self.world_size > 1:
            self._signals = AgreedSignals(self.classes.PACKAGE, trainer, self._agree_on_signals)

    @property
    def _keeps_step(self) -> bool:
        """Whether all ranks make the same step at the same time."""
        return not self.exchanged_by.name.startswith("async")

    def _agree_on_signals(self, mine: torch.Tensor) -> torch.Tensor:
        # The ranks of async do not wait for each other in every step: a rank that a signal ends tells the others.
        if not self._keeps_step:
            return mine
        # Between two batches a callback may have written weights, on some ranks perhaps: all go on from their average.
        written = self._wrapper is not None and self._wrapper.weights_were_written()
        *agreed, any_written = self.reduce(torch.tensor([*mine.tolist(), int(written)]), reduce_op="max")
        if any_written:
            self._wrapper.flush()
        return torch.stack(agreed)

    def note_failure(self, exception: BaseException) -> None:
        """Tells the others that ``exception`` has ended this rank's training; called before anything is done about it."""
        # All ranks act on a SIGTERM together.
        if self._is_alone or type(exception).__name__ == "SIGTERMException" and self._keeps_step:
            return
        self._is_alone = True
        _failures.tell_others(exception)

    def _name_option_for_unused(self, exception: BaseException) -> None:
        """Replaces torch's error about unused parameters, in whose place Lightning would name its own strategies."""
        if not any("Expected to have finished reduction in the prior iteration" in str(text) for text in exception.args):
            return
        option = f"strategy={type(self).__name__}(…, find_unused_parameters=True)"
        if type(self) is self.classes.TuttiStrategy:
            name = with_options(self._named, "find_unused_parameters=true").replace(":", ",")
            option = f'strategy="{_names.FAMILY}:{name}", or {option}'
        exception.args = (f"parameters of {type(self.lightning_module).__name__} were not used in producing the loss of a "
                          f"backward, which waits for the gradients of all: if that is meant, write {option}",)

    def on_exception(self, exception: BaseException) -> None:
        self.note_failure(exception)
        self._name_option_for_unused(exception)
        super().on_exception(exception)

    def barrier(self, *arguments: Any, **keywords: Any) -> None:
        if not self._is_alone:
            super().barrier(*arguments, **keywords)

    def teardown(self) -> None:
        if not self._is_alone:
            try:
                self._last_state = self._state()
            except RuntimeError as error:  # the exchange for the next step, for one, which peers have given up
                warnings.warn(f"{error}: checkpoints made from here on have no state of the strategy", stacklevel=2)
        if self._wrapper is not None:
            self._wrapper._leave_optimizers()
            self.model = self.lightning_module
        self._exchange = None
        vars(self.precision_plugin).pop("clip_gradients", None)  # what _check_clipping_of_momentum has put there
        if self._scaler is not None:
            self._scaler.load_state_dict(self.precision_plugin.scaler.state_dict())
            self.precision_plugin.scaler, self._scaler = self._scaler, None
        if self._signals is not None:
            self._signals.remove()
            self._signals = None
        trainer = getattr(self.lightning_module, "_trainer", None)
        if trainer is not None and self._first_callback in trainer.callbacks:
            trainer.callbacks.remove(self._first_callback)
        super().teardown()

    # ---- training ----

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        wrapper = self._wrapper
        with super().block_backward_sync() if wrapper is None else wrapper.no_sync():
            yield

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        super().pre_backward(closure_loss)
        scale = scale_of(self.precision_plugin)
        if self._exchange is not None and scale is not None:
            self._exchange.set_loss_scale(scale)

    def agree_on_weights(self) -> None:
        """Gives all ranks the average of their weights, where they differ while the model trains. Collective."""
        if self._wrapper is not None and not self._is_alone:
            self._wrapper.flush()

    def _agree_on_written_weights(self) -> None:
        """As ``agree_on_weights``, where all ranks have written weights other than by a step."""
        if self._wrapper is not None and self._wrapper.weights_were_written():
            self._wrapper.flush()

    def _act_on_signals(self) -> None:
        if self._signals is not None:
            self._signals.act()

    def on_validation_start(self) -> None:
        super().on_validation_start()
        self._act_on_signals()
        self.agree_on_weights()
        self._validation_begins = True

    def on_train_start(self) -> None:
        super().on_train_start()
        if self.world_size == 1:
            return
        trainer = self.lightning_module.trainer
        if self._keeps_step:
            _batches.warn_of_unequal(trainer.num_training_batches, self.root_device)
        else:
            _batches.warn_of_waits(trainer, self.classes.PACKAGE)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self._check_groups_of_momentum()
        # A callback has written weights at the start of this batch: training goes on from their average.
        self._agree_on_written_weights()

    def validation_step(self, *arguments: Any, **keywords: Any) -> Any:
        if self._validation_begins:
            # WeightAveraging has put its average in place after the agreement: that of each rank's own weights.
            self._validation_begins = False
            self._agree_on_written_weights()
        return super().validation_step(*arguments, **keywords)

    def on_train_end(self) -> None:
        super().on_train_end()
        self._act_on_signals()
        self.agree_on_weights()

    # Callbacks may save a checkpoint after an exception, each rank by itself.

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return decision if self._is_alone else super().reduce_boolean_decision(decision, all)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj if self._is_alone else super().broadcast(obj, src)

    def reduce(self, tensor: Any, group: dist.ProcessGroup | None = None, reduce_op: Any = "mean") -> Any:
        """Reduces ``tensor`` over the ranks of ``group``, in place, by ``reduce_op``: a ReduceOp, or its name."""
        if not isinstance(tensor, torch.Tensor) or not dist.is_initialized() or self._is_alone:
            return tensor
        op = reduce_op
        if isinstance(reduce_op, str):
            op = getattr(dist.ReduceOp, {"MEAN": "AVG"}.get(reduce_op.upper(), reduce_op.upper()), None)
            if op is None:
                raise ValueError(f"Unrecognized `reduce_op` for `{type(self).__name__}`: {reduce_op!r}; use mean, sum, "
                                 "min, max, product, band, bor or bxor")
        # Lightning's own function waits for all ranks in a barrier before.
        dist.all_reduce(tensor, op, group)
        return tensor

    # ---- checkpoints ----

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self.agree_on_weights()
        if self._exchanges_weights and self._wrapper is not None and not self._is_alone:
            _averages.agree(self._wrapper, self.lightning_module.trainer, self.classes.PACKAGE)
        return super().lightning_module_state_dict()

    def _state(self) -> dict[str, Any] | None:
        """This rank's state of the strategy; after a fit, that at its end."""
        exchange = self._wrapper or self._exchange
        return self._last_state if exchange is None else _states.state_of(exchange)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        state = None if self._is_alone else self._state()
        # After a fit whose end could not be read on some ranks, the others have a state that nobody could load alone.
        if "optimizer_states" in checkpoint and self.reduce_boolean_decision(state is not None):
            checkpoint[_states.KEY] = _states.gather(state)
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        super().load_optimizer_state_dict(checkpoint)
        exchange = self._wrapper or self._exchange
        if exchange is not None:
            _states.load(checkpoint.get(_states.KEY), exchange)


class BaguaStrategy(TuttiStrategy):
    """Lightning's BaguaStrategy, on Tutti: ``Trainer(strategy=BaguaStrategy("bytegrad"))``.

    The arguments are those of Lightning 1.6 to 1.9; ``algorithm`` is ``gradient_allreduce``, ``bytegrad``, ``qadam``,
    ``decentralized``, ``low_precision_decentralized`` or ``async``, with the algorithm's options as keywords. All that
    :class:`TuttiStrategy` takes is taken.
    """
