"""``init_method="tutti://"``: who this process is, and where the ranks meet, from whichever launcher started them.

torchrun, and scripts that set ``RANK`` and ``WORLD_SIZE`` themselves, are served as by ``env://``; ``mpirun`` and
``srun`` need no variable. A process that no launcher started is a world of one rank.
"""

import os
import socket
from datetime import timedelta
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import register_rendezvous_handler

SCHEME = "tutti"
_PORT = 29500  # torch's own default for MASTER_PORT, as torchrun has it


def _serve_this_node(size: int, timeout: timedelta) -> dist.Store:
    """torch's store on a free port of loopback. A socket that torch makes itself would listen on every interface."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return dist.TCPStore("127.0.0.1", port, size, True, timeout, wait_for_workers=False,
                         master_listen_fd=listener.detach())


def _port_of_rank_0(extension, own: int | None, timeout: timedelta) -> int:
    """The port that rank 0 gives as ``own``: the others learn it through a file that only this user can read."""
    return int(extension.meet(str(own or ""), timeout.total_seconds())[0])


def _on_this_node(extension, rank: int, size: int, timeout: timedelta) -> dist.Store:
    """A store of rank 0 on a free port."""
    store = _serve_this_node(size, timeout) if rank == 0 else None
    port = _port_of_rank_0(extension, store.port if store else None, timeout)
    return store or dist.TCPStore("127.0.0.1", port, size, False, timeout)


def port_on_this_node(extension, rank: int) -> int:
    """A port for rank 0's store that is free now, whatever ``MASTER_PORT`` says, which may be left from another job."""
    own = None
    if rank == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            own = free.getsockname()[1]
    return _port_of_rank_0(extension, own, extension.timeout_of_group(default_pg_timeout))


def main_port() -> int:
    """The port of ``MASTER_ADDR`` where the ranks meet. ValueError when ``MASTER_PORT`` is not a port."""
    given = os.environ.get("MASTER_PORT") or str(_PORT)
    if not given.isdecimal() or not 0 < int(given) < 1 << 16:
        raise ValueError(f"MASTER_PORT={given}: expected a port from 1 to 65535")
    return int(given)


def address_counts(extension) -> bool:
    """Whether ``MASTER_ADDR`` says where ranks meet that are perhaps all on this node.

    Not where the launcher has said that they are: ``MASTER_ADDR`` may be left from another job.
    """
    return bool(os.environ.get("MASTER_ADDR")) and extension.assumes_all_here()


def address(extension) -> tuple[str, int]:
    """Where rank 0 of a job on several nodes serves torch's store."""
    if os.environ.get("MASTER_ADDR") and not os.environ.get("TUTTI_RENDEZVOUS"):
        return os.environ["MASTER_ADDR"], main_port()
    try:
        host, port = extension.rendezvous_address().rsplit(":", 1)
    except ValueError as error:
        raise ValueError(f"{error}, or MASTER_ADDR=host (and MASTER_PORT, otherwise {_PORT})") from None
    return host.strip("[]"), int(port)


def _rendezvous(url: str, timeout: timedelta = default_pg_timeout, **_):
    from tutti.torch import _core

    given = {name: int(value) for name, value in parse_qsl(urlparse(url).query)}
    by_torch = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if by_torch and "TUTTI_RANK" not in os.environ:
        # The arguments, which torch puts into the address, come first for env://, too.
        yield from dist.rendezvous("env://", given.get("rank", -1), given.get("world_size", -1), timeout=timeout)
        return
    timeout = _core().timeout_of_group(timeout)
    rank, size, _, local_size, launcher = _core().launcher_identity()
    for name, says in ("rank", rank), ("world_size", size):
        if given.get(name, says) != says:
            who = "no launcher has started this process, so" if launcher == "single" else f"the launcher {launcher} says"
            raise ValueError(
                f"init_process_group: {name}={given[name]}, and {who} {name}={says}; leave the argument out, or use "
                f"another init_method than {SCHEME}://")
    if size == 1:
        store = dist.HashStore()
    elif local_size == size and not address_counts(_core()):
        store = _on_this_node(_core(), rank, size, timeout)
    else:
        host, port = address(_core())
        store = dist.TCPStore(host, port, size, rank == 0, timeout, multi_tenant=True)
    yield store, rank, size
    raise RuntimeError(f"init_process_group: {SCHEME}:// cannot meet a second time")


register_rendezvous_handler(SCHEME, _rendezvous)
