"""Training by a strategy of Tutti inside Lightning's Fabric."""

import contextlib
import gc
import weakref
from datetime import timedelta
from typing import Any, Literal

import torch
from torch.distributed.constants import default_pg_timeout

import tutti.torch
from tutti.lightning import _environment, _names, _states
from tutti.lightning._scaler import scale_of, shared_scaler
from tutti.lightning._strategy import Remade
from tutti.lightning.qadam import check_clipping


class _SyncControl:
    """Lets Fabric accumulate gradients (``no_backward_sync``) in either DistributedDataParallel."""

    def no_backward_sync(self, module: torch.nn.Module, enabled: bool) -> contextlib.AbstractContextManager:
        if not hasattr(module, "no_sync"):
            raise TypeError("fabric.no_backward_sync is for a module that fabric.setup has returned, which is wrapped in "
                            f"DistributedDataParallel; got one of type {type(module).__name__}")
        return module.no_sync() if enabled else contextlib.nullcontext()


def _inner(model: torch.nn.Module) -> torch.nn.Module:
    """What Fabric's module and those of torch.compile have inside."""
    for name in ("_orig_mod", "_forward_module", "_orig_mod"):
        model = getattr(model, name, model)
    return model


class TuttiFabricStrategy(Remade):
    """Data parallel training by a strategy of Tutti, in Fabric: ``Fabric(strategy="tutti:bytegrad")``.

    ``algorithm``, ``autotune`` and ``options`` are those of :class:`TuttiStrategy`, the others those of Fabric's
    DDPStrategy. Strategies that exchange weights or momentum, and ``autotune``, need the optimizers:
    ``fabric.setup(model, optimizer)``. Before an evaluation call ``fabric.strategy.flush(model)``. A checkpoint that has
    a model holds the strategy's state of every rank, and may be loaded on another number of ranks.
    """

    def __init__(
        self,
        algorithm: Any = "gradient_allreduce",
        *,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: Any = None,
        checkpoint_io: Any = None,
        precision: Any = None,
        process_group_backend: str | None = "tutti",
        timeout: timedelta | None = default_pg_timeout,
        start_method: Literal["popen", "spawn", "fork", "forkserver"] = "popen",
        autotune: bool | None = None,
        **options: Any,
    ) -> None:
        _environment.check_backend(self, process_group_backend)
        _environment.check_timeout(self, timeout)
        algorithm, self._autotune = _names.take_autotune(algorithm, autotune)
        self._named, of_ddp = _names.read(algorithm, options)
        self.exchanged_by = tutti.torch.parse_strategy(self._named)
        super().__init__(
            accelerator=accelerator, parallel_devices=parallel_devices, cluster_environment=cluster_environment,
            checkpoint_io=checkpoint_io, precision=precision, process_group_backend=process_group_backend,
            timeout=timeout, start_method=start_method, **of_ddp)
        self._backward_sync_control = _SyncControl()
        # By the models, in the order in which they were made; None for wrappers of Tutti, which exchange by themselves.
        self._exchanges: weakref.WeakKeyDictionary[Any, tutti.torch.GradientExchange | None] = weakref.WeakKeyDictionary()
        self._declared_scale: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spawn sends the strategy to processes that have set up no model yet; weak references cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "_exchanges"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _exchanges=weakref.WeakKeyDictionary())

    def _setup_distributed(self) -> None:
        _environment.make_group(self.cluster_environment, self._get_process_group_backend(), self._timeout,
                                self.root_device)
        super()._setup_distributed()

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        autotunes = _names.autotunes(self._autotune)
        if self.exchanged_by.exchanges != "gradients" or autotunes:
            raise ValueError(f"the strategy {self.exchanged_by.name}{', with autotune,' if autotunes else ''} needs "
                             "the optimizers: model, optimizer = fabric.setup(model, optimizer)")
        model = super().setup_module(module)
        self._add(model, tutti.torch.register(model, self.exchanged_by.name))
        return model

    def _add(self, model: torch.nn.Module, exchange: tutti.torch.GradientExchange | None) -> None:
        self._exchanges[model] = exchange
        if scale_of(self.precision) is not None:
            # An override in the class would let Fabric refuse loss.backward() without a scaler, too.
            self.backward = self._backward_of_scaled
        self._declared_scale = None  # the next backward declares the scale to this model's exchange, too

    def setup_module_and_optimizers(
        self, module: torch.nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[Any, ...]:
        autotunes = _names.autotunes(self._autotune)
        if self.exchanged_by.exchanges == "gradients" and not autotunes:
            return super().setup_module_and_optimizers(module, optimizers, scheduler)
        options = _names.wrapper_options(self._ddp_kwargs, self.exchanged_by.name)
        model = tutti.torch.DistributedDataParallel(module, optimizers, self._named, autotune=autotunes, **options)
        self._add(model, None)
        if getattr(self.precision, "scaler", None) is not None:
            self.precision.scaler = shared_scaler(model, self.precision.scaler)
        return model, optimizers, scheduler

    def wrapper_of(self, model: torch.nn.Module) -> tutti.torch.DistributedDataParallel:
        """The wrapper of Tutti inside ``model``, which ``fabric.setup`` returned, for what no model of Fabric has.

        That is ``broadcast()``, after weights were written other than by a step, ``check_replicas()``, ``pause()`` and so
        on. ValueError where ``model`` is not trained in a wrapper of Tutti.
        """
        wrapper = _inner(model)
        if not isinstance(wrapper, tutti.torch.DistributedDataParallel):
            raise ValueError(f"wrapper_of: model is a {type(model).__name__} in no wrapper of Tutti, which models are in that "
                             "fabric.setup(model, optimizer) has returned where weights or momentum are exchanged, or with "
                             "autotune")
        return wrapper

    def flush(self, model: torch.nn.Module) -> None:
        """Gives all ranks the average of the weights of ``model``, which ``fabric.setup`` returned, before an evaluation.

        Leaves weights alone that the strategy keeps equal anyway. Collective.
        """
        if not isinstance(_inner(model), torch.nn.parallel.DistributedDataParallel):
            self.wrapper_of(model).flush()

    def _backward_of_scaled(
        self, tensor: torch.Tensor, module: torch.nn.Module | None, *arguments: Any, **keywords: Any
    ) -> None:
        scale = scale_of(self.precision)
        if scale is not None:
            self._declare_scale(scale, module)
        super().backward(tensor, module, *arguments, **keywords)

    def _declare_scale(self, scale: float, module: torch.nn.Module | None) -> None:
        """Declares the loss scale of a backward to the exchange of ``module``; None: to those of all models."""
        models = [module]
        if module is None:
            # fabric.backward(loss) does not say of which model the loss is. A declaration is collective, so that all
            # ranks must have the same models: a cycle may keep one that is dropped alive on some ranks.
            if scale != self._declared_scale and len(self._exchanges) > 1:
                gc.collect()
            models = list(self._exchanges)
            self._declared_scale = scale
        for exchange in map(self._exchange_of, models):
            if exchange is not None:
                exchange.set_loss_scale(scale)

    def clip_gradients_norm(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, *arguments: Any, **keywords: Any
    ) -> torch.Tensor:
        check_clipping(optimizer)
        return super().clip_gradients_norm(module, optimizer, *arguments, **keywords)

    def clip_gradients_value(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, *arguments: Any, **keywords: Any
    ) -> None:
        check_clipping(optimizer)
        super().clip_gradients_value(module, optimizer, *arguments, **keywords)

    def get_module_state_dict(self, module: torch.nn.Module) -> dict[str, Any]:
        if isinstance(module, tutti.torch.DistributedDataParallel):
            module.flush()
            module = module.module
        return super().get_module_state_dict(module)

    def load_module_state_dict(self, module: torch.nn.Module, state_dict: dict[str, Any], strict: bool = True) -> None:
        wrapper = module if isinstance(module, tutti.torch.DistributedDataParallel) else None
        super().load_module_state_dict(module if wrapper is None else wrapper.module, state_dict, strict)
        if wrapper is not None:
            wrapper.broadcast()

    def _exchange_of(self, model: Any) -> _states.Exchanges | None:
        """What exchanges the gradients or weights of ``model``; None for anything else in the user's state."""
        if isinstance(model, tutti.torch.DistributedDataParallel):
            return model
        return self._exchanges.get(model) if isinstance(model, torch.nn.Module) else None

    def _exchanges_in(self, state: dict[str, Any]) -> dict[str, _states.Exchanges]:
        found = {name: self._exchange_of(value) for name, value in state.items()}
        return {name: exchange for name, exchange in found.items() if exchange is not None}

    def save_checkpoint(self, path: Any, state: dict[str, Any], *arguments: Any, **keywords: Any) -> None:
        if _states.KEY in state:
            raise ValueError(f"state has the key {_states.KEY!r}, which is that of the strategy's own states: use another")
        exchanges = self._exchanges_in(state)
        # The weights come first: a flush changes them, and with them the state.
        kind = tutti.torch.DistributedDataParallel
        state = {name: self.get_module_state_dict(value) if isinstance(value, kind) else value
                 for name, value in state.items()}
        mine = {name: _states.state_of(exchange) for name, exchange in exchanges.items()}
        if mine:
            state = {**state, _states.KEY: _states.gather(mine)}
        super().save_checkpoint(path, state, *arguments, **keywords)

    def load_checkpoint(self, path: Any, state: Any = None, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        remainder = super().load_checkpoint(path, state, *arguments, **keywords)
        if isinstance(state, dict) and state:
            saved = remainder.pop(_states.KEY, [])
            for name, exchange in self._exchanges_in(state).items():
                _states.load([of_rank[name] for of_rank in saved if name in of_rank], exchange)
        return remainder
