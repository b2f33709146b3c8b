"""The optimizer of the strategy ``qadam``."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tutti.torch import states

_STATE = "qadam"


class QAdam(torch.optim.Optimizer):
    """Adam whose ranks exchange momentum in 8 bits per element, once its variance has settled.

        optimizer = tutti.torch.QAdam(module.parameters(), lr=1e-3)
        model = tutti.torch.DistributedDataParallel(module, optimizer, "qadam:warmup_steps=100")

    docs/algorithms/qadam.md has the formulas. ``lr``, ``betas``, ``eps`` and ``weight_decay`` are those of
    ``torch.optim.Adam``, per group; ValueError names any other key of a group. The
    optimizer has all parameters of one model, and works once the model is wrapped. Groups, schedulers, ``zero_grad``
    and closures work as with any optimizer of torch. After the warm-up ``grad`` holds momentum between ``backward()``
    and ``step()``: clip gradients in the warm-up only, call ``zero_grad()`` in every step, run all but the last
    backward of a step in ``model.no_sync()``, and use no loss scaler. The state (m and v) is equal on all ranks, so all
    ranks can load the one that any rank has saved.
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
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)
        for group in self.param_groups:
            unknown = sorted(set(group) - set(defaults) - {"params", "param_names", "initial_lr"})
            if unknown:
                raise ValueError(f"QAdam: a group of parameters has {unknown[0]!r}; it may have {', '.join(defaults)}")
        self._replicas: Any = None
        self._loaded: torch.Tensor | None = None  # a state that was loaded before the model was wrapped

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

    def state_dict(self) -> dict[str, Any]:
        """The state of all groups, m and v; equal on all ranks."""
        return {**super().state_dict(), _STATE: states.to_tensor(self._attached().save_qadam())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what ``state_dict()`` returned, in a world of any size; before the model is wrapped, or after it."""
        if _STATE not in state_dict:
            raise ValueError(f"QAdam.load_state_dict: the key {_STATE!r} is missing; was another optimizer saved?")
        if self._replicas is None:
            self._loaded = state_dict[_STATE]
        else:
            self._replicas.load_qadam(states.to_bytes(state_dict[_STATE]))
        super().load_state_dict({key: value for key, value in state_dict.items() if key != _STATE})

    def _attached(self) -> Any:
        if self._replicas is None:
            raise ValueError(f"{type(self).__name__} belongs to a model: {self._how_to_use}")
        return self._replicas

    def _attach(self, replicas: Any) -> None:
        """Makes this the optimizer of ``replicas``. Collective."""
        if self._replicas is not None:
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
        self._replicas = replicas
        if self._loaded is not None:
            replicas.load_qadam(states.to_bytes(self._loaded))
            self._loaded = None
