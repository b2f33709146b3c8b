"""What ranks must have in common before they exchange it, compared over all of them: an error names rank and difference."""

import hashlib
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

Fields = list[tuple[str, str]]  # names of what is exchanged, and what is under each name


def digest(value: Any) -> int:
    """64 bits by which ranks see whether their values are equal."""
    return int.from_bytes(hashlib.sha256(repr(value).encode()).digest()[:8], "big", signed=True)


def gather(*numbers: int) -> list[list[int]]:
    """The numbers that each rank gives. Collective."""
    of_ranks = torch.empty(dist.get_world_size(), len(numbers), dtype=torch.int64)
    dist.all_gather_into_tensor(of_ranks, torch.tensor(numbers))
    return of_ranks.tolist()


def facts_of(tensor: torch.Tensor) -> str:
    """Type and shape, which all ranks have in common."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def agree(call: str, fields: Fields, right: str) -> None:
    """ValueError, the same on all ranks, unless all give the same ``fields`` in the same order. Collective.

    The error says what ``call`` is, which rank differs from rank 0 in what, and what would be ``right``.
    """
    mine = digest(fields)
    if all(other == [mine] for other in gather(mine)):
        return
    of_ranks: list[Fields] = [[]] * dist.get_world_size()
    dist.all_gather_object(of_ranks, fields)
    rank = next(rank for rank, of_rank in enumerate(of_ranks) if of_rank != of_ranks[0])
    raise ValueError(f"{call}: rank {rank} {_difference(of_ranks[rank], of_ranks[0])}; {right}")


def _difference(fields: Fields, of_rank_0: Fields) -> str:
    known, wanted = dict(fields), dict(of_rank_0)
    for name in wanted:
        if name not in known:
            return f"has no {name}, which rank 0 has"
    for name in known:
        if name not in wanted:
            return f"has {name}, which rank 0 has not"
    pairs = zip_longest(fields, of_rank_0, fillvalue=("nothing",))
    one, other = next((one, other) for one, other in pairs if one != other)
    return f"has {' '.join(one)} where rank 0 has {' '.join(other)}"
