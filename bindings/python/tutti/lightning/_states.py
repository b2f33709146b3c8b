"""States of a strategy in checkpoints of Lightning: what the strategy's later steps depend on beside the weights."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch import states as of_torch

KEY = "tutti"  # of the states in a checkpoint
_WRAPPER = "wrapper"  # the key, in a state, of the DistributedDataParallel that has made the state: torch's or Tutti's

# What exchanges: Tutti's own wrapper, or the hook of torch's DistributedDataParallel.
Exchanges = tutti.torch.DistributedDataParallel | tutti.torch.GradientExchange


def state_of(exchange: Exchanges) -> dict[str, Any]:
    """This rank's state."""
    if isinstance(exchange, tutti.torch.DistributedDataParallel):
        return {**exchange.strategy_state(), _WRAPPER: "tutti"}
    return {**exchange.state_dict(), _WRAPPER: "torch"}


def gather(state: Any) -> list[Any] | None:
    """``state`` of every rank, on rank 0, which writes the checkpoint; None elsewhere. Collective."""
    states = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    # As bytes: who pickles a tensor calls torch.save, on ranks that write nothing.
    dist.gather_object(_replaced(state, torch.Tensor, of_torch.to_bytes), states)
    return None if states is None else [_replaced(one, bytes, of_torch.to_tensor) for one in states]


def _replaced(value: Any, kind: type, function: Callable[[Any], Any]) -> Any:
    """``value`` with ``function`` of what is of ``kind``, also in dictionaries inside."""
    if isinstance(value, dict):
        return {key: _replaced(inside, kind, function) for key, inside in value.items()}
    return function(value) if isinstance(value, kind) else value


def load(states: Sequence[Mapping[str, Any]] | None, exchange: Exchanges) -> None:
    """Loads the states of all saved ranks; those of another strategy or option, or None, let the strategy start anew.

    Collective. ValueError, on every rank, where ranks have got states of different strategies.
    """
    own = _strategy_of([state_of(exchange)])
    saved = [""] * dist.get_world_size()
    dist.all_gather_object(saved, _strategy_of(states))  # loading is collective: either all ranks load, or none
    suits = [one == own for one in saved]
    if any(suits) and not all(suits):
        wrong, right = suits.index(False), suits.index(True)
        raise ValueError(f"rank {wrong} loads a checkpoint with the state of {saved[wrong]}, and rank {right} one with the "
                         f"state of {saved[right]}: load the same checkpoint on all ranks")
    if not any(suits):
        if states and dist.get_rank() == 0:
            warnings.warn(f"the checkpoint has the state of {saved[0]}, and this is {own}, which starts anew, from the "
                          "weights of the checkpoint", stacklevel=2)
        return
    if isinstance(exchange, tutti.torch.DistributedDataParallel):
        exchange.load_strategy_state(states)
    else:
        exchange.load_state_dict(states)


def _strategy_of(states: Any) -> str:
    """The strategy that has made ``states``, and its wrapper, in words."""
    first = states[0] if isinstance(states, Sequence) and states else None
    if not isinstance(first, Mapping) or not {"strategy", _WRAPPER} <= first.keys():
        return "no strategy"
    return f"strategy {first['strategy']!r} of {first[_WRAPPER]}'s wrapper"
