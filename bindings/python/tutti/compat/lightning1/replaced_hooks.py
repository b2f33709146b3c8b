"""Hooks of one model or callback, not of its class, replaced for a while."""

import functools
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str, hook: Any) -> Callable[[], None]:
    """Gives ``owner`` another hook ``name``; what is returned gives the hook back as it was."""
    undo = functools.partial(_restore, owner, name, vars(owner).get(name))
    setattr(owner, name, hook)
    return undo


def _restore(owner: Any, name: str, before: Any) -> None:
    delattr(owner, name)
    if before is not None:
        setattr(owner, name, before)
