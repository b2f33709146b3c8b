"""States of Tutti as values that ``torch.save`` writes and ``torch.load`` reads, also with ``weights_only=True``."""

import torch


def to_tensor(state: bytes) -> torch.Tensor:
    """The bytes of ``state`` as a tensor, which takes as much space in a file as the bytes."""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8) if state else torch.empty(0, dtype=torch.uint8)


def to_bytes(state: torch.Tensor) -> bytes:
    """The bytes that :func:`to_tensor` was given; ``torch.load`` may have put ``state`` on a GPU."""
    return state.cpu().numpy().tobytes()
