"""The time that a collective takes at least: that of the bytes which the busiest link has to carry, without headers."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))
from links import bits_per_second

# The bytes that a host has to send or to receive, whichever are more, as a share of the larger of a rank's input and
# output, by the number of hosts. Links carry both directions at once.
SHARES = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1,
    "reduce": lambda n: 1,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_to_all_v": lambda n: (n - 1) / n,
    "send_recv": lambda n: 1,
}


def time_us(collective, hosts, rate, nbytes):
    bits = bits_per_second(rate)
    return round(8e6 * nbytes * SHARES[collective](hosts) / bits, 3) if bits else None


def largest(collective, hosts, rate, seconds):
    """The bytes of the largest call that the wire can do in so many seconds."""
    bits = bits_per_second(rate)
    return int(seconds * bits / 8 / SHARES[collective](hosts)) if bits else 1 << 62
