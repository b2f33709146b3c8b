"""Whether a module still has the parameters or buffers that it had."""

import operator
from typing import Any

import torch

Places = list[tuple[dict[str, Any], list[Any]]]


def places_of(module: torch.nn.Module, kind: str) -> Places:
    """The tables of a kind, and those of children, of all modules inside, and what is in them: quick to compare."""
    return [(table, list(table.values()))
            for inner in module.modules() for table in (getattr(inner, kind), inner._modules)]


def hold(places: Places) -> bool:
    """Whether the tables still have in them what they had."""
    return all(len(table) == len(values) and all(map(operator.is_, table.values(), values)) for table, values in places)
