"""A batch in pieces, and the outputs of the pieces as one: what torch's DataParallel does with tensors of GPUs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def _rebuilt(like: Any, values: Sequence[Any]) -> Any:
    """A list, tuple or named tuple of the type of ``like``."""
    return type(like)(*values) if hasattr(like, "_fields") else type(like)(values)


def _count(value: Any) -> int | None:
    """The length of the first dimension of the shortest tensor in ``value``; None where it holds no tensor to split."""
    if isinstance(value, torch.Tensor):
        return len(value) if value.dim() > 0 else None
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return min((count for count in map(_count, inner) if count is not None), default=None)


def _piece(value: Any, index: int, pieces: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            return value
        chunks = value.chunk(pieces)  # may be fewer, where a tensor is longer than the others
        return (chunks if len(chunks) == pieces else value.tensor_split(pieces))[index]
    if isinstance(value, Mapping):
        return type(value)({key: _piece(inner, index, pieces) for key, inner in value.items()})
    if isinstance(value, (list, tuple)):
        return _rebuilt(value, [_piece(inner, index, pieces) for inner in value])
    return value


def scatter(value: Any, pieces: int) -> list[Any]:
    """Splits every tensor in ``value``, also inside lists, tuples and dicts, along its first dimension.

    The pieces are those of torch's DataParallel (``torch.chunk``): equally long, but for the last one; of ten rows for
    four they are three, three, three and one long. Returns ``pieces`` values, or fewer where a tensor is too short. All
    other values are in each piece.
    """
    count = _count(value)
    pieces = 1 if not count else len(range(0, count, -(-count // pieces)))
    return [_piece(value, index, pieces) for index in range(pieces)]


def gather(outputs: Sequence[Any], place: str) -> Any:
    """The outputs of the pieces as one: tensors are concatenated, and tensors without dimensions and numbers stacked.

    Lists, tuples and dicts are gathered value by value. ValueError, which names the ``place`` of the outputs, where some
    pieces have longer lists than others, keys that others lack, or None where others have values, which would be lost.
    """
    first = outputs[0]
    without = [str(index) for index, output in enumerate(outputs) if output is None]
    if 0 < len(without) < len(outputs):
        raise ValueError(f"{place} is None for piece {', '.join(without)} of the {len(outputs)} pieces of a batch, counted "
                         "from 0, and the values of the others would be lost: return a value for each piece, or None for all")
    if isinstance(first, torch.Tensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs))
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        return torch.tensor(outputs)
    if isinstance(first, Mapping):
        for key in dict.fromkeys(key for output in outputs for key in output):
            lacking = sum(key not in output for output in outputs)
            if lacking:
                raise ValueError(f"{place} has no {key!r} for {lacking} of the {len(outputs)} pieces of a batch, and such "
                                 "outputs are gathered value by value: return the same keys for each piece")
        return type(first)({key: gather([output[key] for output in outputs], f"{place}[{key!r}]") for key in first})
    if isinstance(first, (list, tuple)):
        lengths = [len(output) for output in outputs]
        if len(set(lengths)) > 1:
            raise ValueError(f"{place} is a {type(first).__name__} of {', '.join(map(str, lengths))} values for the pieces of "
                             "a batch, and such outputs are gathered value by value: return a tensor with a row for each "
                             f"sample (of texts, their numbers), and a {type(first).__name__} only of as many values for "
                             "each piece")
        return _rebuilt(first, [gather(inner, f"{place}[{index}]") for index, inner in enumerate(zip(*outputs))])
    return None if first is None else list(outputs)


def in_pieces(step: Callable[..., Any], pieces: int, place: str) -> Callable[..., Any]:
    """``step``, called with one piece of its arguments after the other; returns the outputs, gathered as of ``place``."""

    def steps(*arguments: Any, **keywords: Any) -> Any:
        return gather([step(*some, **named) for some, named in scatter((arguments, keywords), pieces)], place)

    return steps
