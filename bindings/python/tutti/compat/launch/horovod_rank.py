"""``python -m tutti.compat.launch.horovod_rank 4,2 command``: one rank of horovodrun, which becomes the command.

The first argument is how many ranks each host has. torchrun has said who this rank is in its own variables; scripts for
Horovod read HOROVOD_RANK and the like.
"""

import os
import sys


def variables(rank: int, local_rank: int, host: int, ranks_per_host: list[int]) -> dict[str, str]:
    """The variables that horovodrun sets for a rank on the host number ``host``."""
    with_local_rank = [index for index, ranks in enumerate(ranks_per_host) if ranks > local_rank]
    numbers = {
        "RANK": rank, "SIZE": sum(ranks_per_host), "LOCAL_RANK": local_rank, "LOCAL_SIZE": ranks_per_host[host],
        "CROSS_RANK": with_local_rank.index(host), "CROSS_SIZE": len(with_local_rank)
    }
    return {f"HOROVOD_{name}": str(number) for name, number in numbers.items()}


def main() -> None:
    """Replaces this process by the command."""
    ranks_per_host = [int(ranks) for ranks in sys.argv[1].split(",")]
    rank, local_rank, host = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "GROUP_RANK"))
    os.environ.update(variables(rank, local_rank, host, ranks_per_host))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
