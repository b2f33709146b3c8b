"""What a rank that fails does for the others, before anything else of Lightning does something about the failure."""

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

import tutti.torch

# Ranks that fail in so short a time have failed together, and no other waits for them.
_TOGETHER_S = 0.5
_PAUSE_S = 0.01
_ANSWERS_S = 5  # how long the store may take to answer

_group: Callable[[], Any] = lambda: None  # the default group that was seen last
_key = ""  # of that group in the store, equal on all its ranks
_shared = 0  # how often all ranks of that group have failed together, equal on all ranks


def see_group() -> None:
    """Counts failures from 0 in a default group that was not seen before; all ranks of a group call this function.

    The store may be that of the group before, in which the ranks may have counted differently.
    """
    global _group, _key, _shared
    if _group() is dist.group.WORLD:
        return
    size = dist.get_world_size()
    seen = dist.distributed_c10d._get_default_store().add(f"tutti/failures/{size}", 1)  # each rank sees each group once
    _group, _key, _shared = weakref.ref(dist.group.WORLD), f"tutti/failures/{size}/{(seen - 1) // size}", 0


def tell_others(exception: BaseException) -> None:
    """Ends the calls of all other ranks at once, with an error that names this rank and ``exception``.

    Where all ranks fail within half a second (each has raised the same exception), the groups stay as they are: the
    program may catch the exception and make the next Trainer.
    """
    global _shared
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    if _in_time(_all_fail):
        _shared += 1
    else:
        text = f": {exception}" if str(exception) else ""  # KeyboardInterrupt has none
        tutti.torch._core().abort_all_groups(f"failed: {type(exception).__name__}{text}")


def _in_time(all_fail: Callable[[], bool]) -> bool:
    """What ``all_fail`` returns; False where the store does not answer, as that of a rank 0 whose machine has vanished.

    A request to torch's store may last as long as the store's own timeout.
    """
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(all_fail()), daemon=True)
    thread.start()
    thread.join(_ANSWERS_S)
    return answers == [True]


def _all_fail() -> bool:
    end = time.monotonic() + _TOGETHER_S
    try:
        see_group()
        store, key = dist.distributed_c10d._get_default_store(), f"{_key}/{_shared}"
        failed = store.add(key, 1)
        while failed < dist.get_world_size() and time.monotonic() < end:
            time.sleep(_PAUSE_S)
            failed = store.add(key, 0)
        return failed == dist.get_world_size()
    except RuntimeError:  # rank 0, which has the store, has gone
        return False


class TellsOthersFirst:
    """A callback that comes before those of the user, which may save a checkpoint when an exception ends the training."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        trainer.strategy.note_failure(exception)
