"""States of Tutti as values that ``torch.save`` writes and ``torch.load`` reads, also with ``weights_only=True``."""

import collections
import io
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import chain
from typing import Any

import torch

_EXTRA_STATE = "_extra_state"  # torch's key in state_dict() for what get_extra_state() returns


def to_tensor(state: bytes) -> torch.Tensor:
    """The bytes of ``state`` as a tensor, which takes as much space in a file as the bytes."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8) if state else torch.empty(0, dtype=torch.uint8)


def to_bytes(state: torch.Tensor) -> bytes:
    """The bytes that :func:`to_tensor` was given; ``torch.load`` may have put ``state`` on a GPU."""
    return state.cpu().numpy().tobytes()


def weights_of(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """What torch loads of ``state_dict``, with the versions of the modules that wrote it, which torch keeps beside it."""
    weights = collections.OrderedDict({_EXTRA_STATE: None, **state_dict})
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        weights._metadata = metadata
    return weights


def strategy_state_of(extra: Any, place: str, saved_by: str) -> bytes:
    """The state of the strategy in ``extra``, at ``place`` of an argument: in what get_extra_state() returned."""
    by_rank = extra.get("state") if isinstance(extra, Mapping) else None
    state = next(iter(by_rank.values())) if isinstance(by_rank, Mapping) and len(by_rank) == 1 else None
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        raise ValueError(f"{place} holds no state of a strategy: load what {saved_by} of a "
                         "tutti.torch.DistributedDataParallel returned")
    return to_bytes(state)


def strategy_states_in(state_dicts: Sequence[Mapping[str, Any]]) -> list[bytes] | None:
    """The states of the strategy in ``state_dicts``; None where there is none. ValueError where some lack theirs."""
    found = [one.get(_EXTRA_STATE) for one in state_dicts]
    missing = [f"state_dict[{index}]" for index, extra in enumerate(found) if extra is None]
    if len(missing) == len(found):
        return None
    if missing:
        raise some_are_missing(missing)
    return [strategy_state_of(extra, f"load_state_dict: {_EXTRA_STATE!r}", "state_dict()") for extra in found]


def some_are_missing(places: Sequence[str]) -> ValueError:
    """The error that the states of the strategy are missing in ``places`` and not in others."""
    return ValueError(f"load_state_dict: the state of the strategy, {_EXTRA_STATE!r}, is missing in {', '.join(places)}, and "
                      "not in the others: load one checkpoint on all ranks; or, where a rank saved without the state, after "
                      f"an exchange that failed, remove the key {_EXTRA_STATE} on all ranks, and the strategy starts anew "
                      "from rank 0's weights")


def _readable(value: Any) -> bool:
    try:
        file = io.BytesIO()
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception:  # whatever a class of the user's raises when it is pickled
        return False
    return True


def _plain(value: Any) -> Any:
    """``value``, whose numbers of numpy become Python's, and whose tensors are on the CPU: each rank has its own GPU."""
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.shape else value


def _is_common(value: Any) -> bool:
    kind = type(value)
    return kind in (bool, int, float, str, dict) or isinstance(value, torch.Tensor) or _readable(_plain(value))


def common_part(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The ``values`` that ranks can send each other, and of a dict among them its common part, in turn.

    ``torch.load`` reads them with ``weights_only=True``; a function, for one, is each rank's own.
    """
    return {key: common_part(value) if type(value) is dict else _plain(value)
            for key, value in values.items() if _is_common(key) and _is_common(value)}


def with_common_part(values: Mapping[Any, Any], common: Mapping[Any, Any]) -> dict[Any, Any]:
    """``common``, whose tensors go where those of ``values`` are that they replace, and what is this rank's own."""

    def placed(key: Any, value: Any) -> Any:
        before = values.get(key)
        both_are_tensors = isinstance(value, torch.Tensor) and isinstance(before, torch.Tensor)
        return value.to(before.device) if both_are_tensors else value

    own = {key: value for key, value in values.items() if not (_is_common(key) and _is_common(value))}
    dicts = {key: value for key, value in values.items() if type(value) is dict}
    return {**own, **{key: with_common_part(dicts.get(key, {}), value) if type(value) is dict else placed(key, value)
                      for key, value in common.items()}}


@torch.no_grad()
def load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], source: Any) -> None:
    """Loads ``saved``, the state of another rank's optimizer, by what ``load_state_dict`` of ``source`` knows of this one."""
    groups = optimizer.param_groups
    source.load_state_dict(saved)
    # The types in `saved`: torch gives what it loads the type of the parameter, and float32 momentum of a bfloat16
    # parameter would lose its digits.
    numbers = chain.from_iterable(group["params"] for group in saved.get("param_groups", ()))
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    loaded = {number: optimizer.state.get(parameter) for number, parameter in zip(numbers, parameters)}
    _restore_types(loaded, saved.get("state", {}))
    # A tensor of options, such as the rate of an optimizer in a CUDA graph, keeps its place.
    for before, group in zip(groups, optimizer.param_groups):
        for key, value in before.items():
            if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                group[key] = value.copy_(group[key])


def _restore_types(loaded: MutableMapping[Any, Any], saved: Mapping[Any, Any]) -> None:
    for key, value in saved.items():
        found = loaded.get(key)
        if isinstance(found, dict) and isinstance(value, dict):
            _restore_types(found, value)
        elif isinstance(found, torch.Tensor) and isinstance(value, torch.Tensor) and found.dtype != value.dtype:
            loaded[key] = value.to(found.device)
