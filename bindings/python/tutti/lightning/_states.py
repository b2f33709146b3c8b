"""States of a strategy in checkpoints of Lightning: what the strategy's later steps depend on beside the weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist

import tutti.torch

KEY = "tutti"  # of the states in a checkpoint
_WRAPPER = "wrapper"  # the key, in a state, of the DistributedDataParallel that has made the state: torch's or Tutti's

# What exchanges: Tutti's own wrapper, or the hook of torch's DistributedDataParallel.
Exchanges = tutti.torch.DistributedDataParallel | tutti.torch.GradientExchange


def state_of(exchange: Exchanges) -> dict[str, Any]:
    """This rank's state."""
    if isinstance(exchange, tutti.torch.DistributedDataParallel):
        return {**exchange.get_extra_state(), _WRAPPER: "tutti"}
    return {**exchange.state_dict(), _WRAPPER: "torch"}


def gather(state: Any) -> list[Any] | None:
    """``state`` of every rank, on rank 0, which writes the checkpoint; None elsewhere. Collective."""
    states = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(state, states)
    return states


def load(states: Sequence[Mapping[str, Any]] | None, exchange: Exchanges) -> None:
    """Loads the states of all saved ranks; those of another strategy, or None, let the strategy start anew. Collective."""
    if not states or not _suits(states[0], state_of(exchange)):
        return
    if len(states) == dist.get_world_size():
        states = [states[dist.get_rank()]]
    if isinstance(exchange, tutti.torch.DistributedDataParallel):
        exchange.load_strategy_state(states)
    else:
        exchange.load_state_dict(states)


def _suits(saved: Mapping[str, Any], mine: Mapping[str, Any]) -> bool:
    return saved[_WRAPPER] == mine[_WRAPPER] and saved["strategy"].partition(":")[0] == mine["strategy"].partition(":")[0]
