"""States of Tutti as values that ``torch.save`` writes and ``torch.load`` reads, also with ``weights_only=True``."""

import io
from collections.abc import Mapping
from typing import Any

import torch


def to_tensor(state: bytes) -> torch.Tensor:
    """The bytes of ``state`` as a tensor, which takes as much space in a file as the bytes."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8) if state else torch.empty(0, dtype=torch.uint8)


def to_bytes(state: torch.Tensor) -> bytes:
    """The bytes that :func:`to_tensor` was given; ``torch.load`` may have put ``state`` on a GPU."""
    return state.cpu().numpy().tobytes()


def _readable(value: Any) -> bool:
    try:
        file = io.BytesIO()
        torch.save(value, file)
        torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    except Exception:  # whatever a class of the user's raises when it is pickled
        return False
    return True


def _plain(value: Any) -> Any:
    """``value``, whose numbers of numpy become Python's."""
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.shape else value


def common_part(values: Mapping[str, Any]) -> dict[str, Any]:
    """The ``values`` that ranks can send each other: a function, for one, is each rank's own.

    ``torch.load`` reads them with ``weights_only=True``.
    """
    plain = {key: _plain(value) for key, value in values.items()}
    return {key: value for key, value in plain.items() if isinstance(value, (int, float, torch.Tensor)) or _readable(value)}


def with_common_part(values: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """``common``, and what is this rank's own of ``values``."""
    mine = common_part(values)
    return {**{key: value for key, value in values.items() if key not in mine}, **common}
