"""What Bagua-Net was told by environment variables is done by the backend `tutti`, which reads none of them."""

import os
import sys


def variables_of_bagua_net() -> list[str]:
    """The variables in the environment that are for Bagua-Net: its own, and NCCL's where they name it."""
    return sorted(name for name, value in os.environ.items() if name.startswith("BAGUA_NET_") or (
        name in ("NCCL_NET", "NCCL_NET_PLUGIN") and "bagua" in value.lower()))


def say_what_does_its_work() -> None:
    """One line on stderr, of the first process of a job alone, if the environment has variables of Bagua-Net."""
    names = variables_of_bagua_net()
    if names and "TUTTI_COMPAT" not in os.environ and os.environ.get("RANK", "0") == "0":
        print(f"tutti.compat: {', '.join(names)}: Bagua-Net is not used; the backend tutti sends over TCP by itself, "
              "over TUTTI_CONNECTIONS connections between two nodes", file=sys.stderr)
