"""The optimizer of the strategy ``qadam``."""

import math
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tutti.torch import states
from tutti.torch.checks import check_number
from tutti.torch.strategy_names import with_options

_STATE = "qadam"
_OPTIONS = ("lr", "betas", "eps", "weight_decay")  # of a group


def _check_options(group: dict[str, Any]) -> None:
    """Raises an error that names an option of ``group`` which no Adam can work with."""
    for name in ("lr", "eps", "weight_decay"):
        check_number(f"QAdam: {name}", group[name], "a number from 0 on", lambda value: 0 <= value < math.inf)
    betas, right = group["betas"], "two numbers in [0, 1), such as (0.9, 0.999)"
    try:
        first, second = betas
    except (TypeError, ValueError):
        raise TypeError(f"QAdam: betas is {betas!r}; give {right}") from None
    for beta in (first, second):
        check_number("QAdam: one of betas", beta, right, lambda value: 0 <= value < 1)


def _state_in(state_dict: dict[str, Any]) -> torch.Tensor | None:
    """m and v of all parameters in what ``QAdam.state_dict()`` returned; None where there is no such state."""
    # Which parameters are frozen may have changed since, so that every parameter is looked at.
    found = [state[_STATE] for state in state_dict.get("state", {}).values() if _STATE in state]
    return max(found, key=torch.numel, default=None)


def _load(replicas: Any, state: torch.Tensor) -> None:
    """Gives ``replicas`` the ``state``, and warns of a part of the model that is not in it."""
    replicas.load_qadam(states.to_bytes(state))
    anew = replicas.qadam_begun_anew
    if anew:
        names = ", ".join(anew[:3]) + (", …" if len(anew) > 3 else "")
        warnings.warn(f"QAdam: the state has nothing of {len(anew)} parameters that are trained here ({names}), which "
                      "begin anew, as in step 1", stacklevel=3)


def with_warmup_of(optimizers: Iterable[torch.optim.Optimizer], strategy: str) -> str:
    """``strategy`` with the ``warmup_steps`` of an optimizer that has some, such as ``tutti.lightning.QAdamOptimizer``."""
    name, _, options = strategy.partition(":")
    steps = [optimizer.warmup_steps for optimizer in optimizers if hasattr(optimizer, "warmup_steps")]
    if name != "qadam" or "warmup_steps=" in options or not steps:
        return strategy
    return with_options(strategy, f"warmup_steps={steps[0]}")


class QAdam(torch.optim.Optimizer):
    """Adam whose ranks exchange momentum in 8 bits per element, once its variance has settled.

        optimizer = tutti.torch.QAdam(module.parameters(), lr=1e-3)
        model = tutti.torch.DistributedDataParallel(module, optimizer, "qadam:warmup_steps=100")

    docs/algorithms/qadam.md has the formulas. ``lr``, ``betas``, ``eps`` and ``weight_decay`` are those of
    ``torch.optim.Adam``, per group; an error names one that is wrong, and any other key of a group. The optimizer has all
    parameters of one model, and works once the model is wrapped. Groups, schedulers, ``zero_grad`` and closures work as
    with any optimizer of torch. After the warm-up ``grad`` holds momentum between ``backward()`` and ``step()``: clip
    gradients in the warm-up only, call ``zero_grad()`` in every step, run all but the last backward of a step in
    ``model.no_sync()``, and use no loss scaler. The state (m and v) is equal on all ranks, so all ranks can load the one
    that any rank has saved. The wrapper of the model owns the state: once the wrapper is gone, ``step`` and
    ``state_dict`` raise ValueError until the model is wrapped again.
    """

    _how_to_use = 'pass it to tutti.torch.DistributedDataParallel(module, optimizer, "qadam") first'

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
    ) -> None:
        # What the wrapper of the model owns; None before the model is wrapped, after `_leave`, and in a copy. Fabric's
        # view of the optimizer, which is of a derived class, looks for attributes of the object here.
        self._replicas: weakref.ref[Any] | None = None
        self._kept: torch.Tensor | None = None  # the state while there is no wrapper, for the next one
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @property
    def frozen(self) -> bool:
        """Whether the warm-up is over."""
        return self._attached().qadam_frozen

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes the weights by the result of the last backward, which all ranks made."""
        replicas = self._attached()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        replicas.step_qadam()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As that of every optimizer of torch; before the model is wrapped."""
        if isinstance(param_group, dict):  # else torch says what is wrong
            unknown = sorted(set(param_group) - {*_OPTIONS, "params", "param_names", "initial_lr"})
            if unknown:
                raise ValueError(f"QAdam: a group of parameters has {unknown[0]!r}; it may have {', '.join(_OPTIONS)}")
            _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        self._mark_states()

    def state_dict(self) -> dict[str, Any]:
        """The state of all groups; that of the first parameter not frozen has m and v of all. Equal on all ranks."""
        state = self._kept if self._living() is None else None
        if state is None:
            state = states.to_tensor(self._attached().save_qadam())
        saved = super().state_dict()
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        # torch.distributed.checkpoint loads no state of a parameter that is frozen.
        place = next((i for i, parameter in enumerate(parameters) if parameter.requires_grad), 0)
        return {**saved, "state": {**saved["state"], place: {_STATE: state}}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what ``state_dict()`` returned, in a world of any size; before the model is wrapped, or after it."""
        state = _state_in(state_dict)
        if state is None:
            raise ValueError(f"QAdam.load_state_dict: no parameter has {_STATE!r} in its state; was another optimizer "
                             "saved?")
        sizes, own = ([len(group["params"]) for group in groups]
                      for groups in (state_dict.get("param_groups", ()), self.param_groups))
        if sizes != own:
            raise ValueError(f"QAdam.load_state_dict: the state has groups of {sizes} parameters, and this optimizer of "
                             f"{own}: give both all parameters of the model, frozen ones, too")
        replicas = self._living()
        if replicas is None:
            self._kept = state
        else:
            _load(replicas, state)
        super().load_state_dict({**state_dict, "state": {}})
        self._mark_states()

    def __getstate__(self) -> dict[str, Any]:
        """What copies have, which belong to no model; m and v go with them."""
        replicas = self._living()
        kept = self._kept if replicas is None else states.to_tensor(replicas.save_qadam())
        return {**super().__getstate__(), "_replicas": None, "_kept": kept}

    def _mark_states(self) -> None:
        """Gives each parameter a state, so that code which looks there knows its key, and that there is one."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {_STATE: torch.zeros(1, dtype=torch.uint8)}

    def _living(self) -> Any:
        """What the wrapper of the model owns; None while there is no wrapper."""
        return None if self._replicas is None else self._replicas()

    def _attached(self) -> Any:
        replicas = self._living()
        if replicas is None:
            gone = "" if self._replicas is None else ", whose wrapper is gone, and with it m and v"
            raise ValueError(f"{type(self).__name__} belongs to a model{gone}: {self._how_to_use}")
        return replicas

    def _leave(self) -> None:
        """Keeps the state, for the next wrapper of the model: that of now will end."""
        replicas = self._living()
        if replicas is not None:
            self._kept, self._replicas = states.to_tensor(replicas.save_qadam()), None

    def _attach(self, replicas: Any) -> None:
        """Makes this the optimizer of ``replicas``. Collective."""
        if self._living() is not None:
            raise ValueError("QAdam belongs to another model already: make one for each model")
        # The model does not keep the optimizer alive.
        this = weakref.ref(self)

        def groups() -> list[tuple[float, ...]]:
            optimizer = this()
            if optimizer is None:
                raise ReferenceError("the QAdam optimizer was deleted while its model is still trained")
            return [(float(group["lr"]), *map(float, group["betas"]), float(group["eps"]), float(group["weight_decay"]))
                    for group in optimizer.param_groups]

        replicas.make_qadam([group["params"] for group in self.param_groups], groups)
        self._replicas = weakref.ref(replicas)
        if self._kept is not None:
            _load(replicas, self._kept)
            self._kept = None
