"""Whether this machine is idle: beside other programs, ranks that spin while they wait look far slower than they are."""

import os
import sys
import time

LIMIT = 0.05  # the share of the processors below which what other programs use is none
SAMPLE_S = 2
WAIT_S = 300


def add_loaded(parser):
    parser.add_argument("--loaded", action="store_true",
                        help="measure beside other programs, too; the page then says so")


def busy_and_all():
    """The time that the processors of this process have worked since the machine started, and all their time."""
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = total = 0
    with open("/proc/stat") as lines:
        for line in lines:
            name, *times = line.split()
            if name in own:
                user, nice, system, idle, waiting_for_disk, *others = map(int, times[:8])  # guests are in `user`, too
                busy += user + nice + system + sum(others)
                total += user + nice + system + sum(others) + idle + waiting_for_disk
    return busy, total


def share_in_use():
    """The share of the processors, 0 to 1, that programs use for the next seconds, during which this one sleeps."""
    busy_before, all_before = busy_and_all()
    time.sleep(SAMPLE_S)
    busy, total = busy_and_all()
    return (busy - busy_before) / max(total - all_before, 1)


def wait_until_idle(loaded):
    """Waits for the end of what other programs do; returns the share of the processors that they still use.

    Ends the script where they use too much for too long. `loaded`: the script measures all the same, and at once.
    """
    end = time.monotonic() + WAIT_S
    while (share := share_in_use()) >= LIMIT and not loaded:
        if time.monotonic() > end:
            raise SystemExit(f"other programs use {100 * share:.0f} % of the processors: end them, or say --loaded, "
                             "and the page will say so")
        print(f"waiting, because other programs use {100 * share:.0f} % of the processors", file=sys.stderr, flush=True)
    return share


def line(shares):
    """What a page says of the shares of the processors that other programs used before each measurement; None: unknown."""
    known = sorted(100 * share for share in shares if share is not None)
    if not known:
        return "What other programs used of the processors before the first run was not measured."
    most = f"{known[-1]:.0f}" if known[0] == known[-1] else f"up to {known[-1]:.0f}"
    used = f"ther programs used {most} % of the processors before the first run"
    used = f"O{used}." if known[-1] < 100 * LIMIT else f"**On a loaded machine: o{used}.**"
    return used + " What they used before some of the runs was not measured." * (len(known) < len(shares))
