"""Who this process is, as its launcher says: torchrun, mpirun, srun or horovodrun, before there is a process group."""

from typing import NamedTuple


class Identity(NamedTuple):
    """A rank in the world and on its machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def read() -> Identity:
    """The identity of this process; a process that no launcher started is a world of one rank."""
    from tutti.torch import _core

    return Identity(*_core().launcher_identity()[:4])
