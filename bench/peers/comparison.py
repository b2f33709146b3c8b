"""What comparisons of libraries share: options, the loop that measures in turns, and what the rows say together.

Rounds are interleaved: in each, every library measures the same group of sizes right after the others, in an order that
rotates, because the speed of a shared machine drifts within minutes. A figure is the mean over the calls, as in
nccl-tests and the OSU benchmarks (the time of all timed calls together, on the rank that took longest for them, by
their number), and of the rounds the median; a ratio is the median of the ratios within each round, beside the least and the
most of them.
"""

import contextlib
import datetime
import pathlib
import platform
import statistics
import subprocess
import sys

from peers import COLLECTIVES, CORES, ROOT

sys.path.append(str(ROOT / "bench/hosts"))
import idle
from links import end_orderly

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Tutti's columns that are compared with the other libraries: what begins the names of their ratios. Buffers of the others
# are in ordinary memory, as those of `tutti-private` are.
OURS = {"tutti": "", "tutti-private": "private_"}
# The largest size of each group of sizes that one start of a program measures, because a start costs a second or more.
GROUP_ENDS = (16 << 10, 4 << 20, 1 << 62)


def parse_bytes(text):
    unit = UNITS.get(text[-1].upper())
    return int(text[:-1]) * unit if unit else int(text)


def show_bytes(n):
    for suffix in ("G", "M", "K"):
        if n % UNITS[suffix] == 0:
            return f"{n // UNITS[suffix]} {suffix}B"
    return f"{n} B"


def add_sizes(parser, end, rounds, begin=4):
    parser.add_argument("-b", "--begin", type=parse_bytes, default=begin)
    parser.add_argument("-e", "--end", type=parse_bytes, default=end)
    parser.add_argument("-f", "--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seconds", type=float, default=0.2, help="bound on the timed calls of one size")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results")
    parser.add_argument("--merge", action="store_true",
                        help="keep the earlier rows of cells (a size, in a world, on a link) that are not wholly measured now; with "
                        "--rounds 0: write the page anew")
    idle.add_loaded(parser)


def add_options(parser, names, end, rounds):
    parser.add_argument("--collective", nargs="+", choices=["all", *COLLECTIVES], default=["all_reduce"],
                        metavar="NAME", help="what to measure: all, or some of " + " ".join(COLLECTIVES))
    add_sizes(parser, end, rounds)
    parser.add_argument("--only", nargs="+", choices=names, default=list(names), metavar="NAME", help=" ".join(names))
    parser.add_argument("--before", type=pathlib.Path, metavar="PROGRAM",
                        help="an older build of tutti, measured in the same rounds as the column `before`")


def parse(parser):
    options = parser.parse_args()
    if options.before and not options.before.exists():
        parser.error(f"--before {options.before} is missing")
    if "all" in options.collective:
        options.collective = COLLECTIVES
    return options


def groups_of(first, last, factor):
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    start = 0
    for end in GROUP_ENDS:
        group = [s for s in sizes if start < s <= end]
        start = end
        if group:
            yield group


def measure(runs, programs, rows):
    """Appends a row for each measurement to `rows`, which keeps the rows made so far when measure is interrupted.

    `runs` is a generator of (round, Run) in the order of measurement.
    """
    with contextlib.closing(runs):
        for round_number, run in runs:
            names = list(programs)
            turn = round_number % len(names)
            for name in names[turn:] + names[:turn]:
                what = ", ".join(f"{label} {value}" for label, value in run.labels.items())
                print(f"{run.ranks} ranks, {what}, {show_bytes(run.sizes[0])} to {show_bytes(run.sizes[-1])}, "
                      f"round {round_number + 1}: {name}", file=sys.stderr, flush=True)
                measured = programs[name](run)
                if wrong := [row for row in measured if row["wrong"]]:
                    raise SystemExit(f"wrong results of {name}: {wrong[0]}")
                rows += [{**row, **run.labels, "name": name, "round": round_number} for row in measured]


def ratio_of(prefix, rivals):
    """The name of a ratio in the entries of a summary."""
    return f"{prefix}times_faster_than_{rivals}"


def rounds_of_ratio(prefix, rivals):
    """The name of the least and the most that a ratio was in single rounds."""
    return f"{ratio_of(prefix, rivals)}_in_rounds"


def cell_of(row, labels):
    """What libraries were compared in: a row's labels, ranks and bytes."""
    return tuple(row[name] for name in (*labels, "ranks", "bytes"))


def names_in_rounds(rows, labels):
    """The names of the programs that were measured in each cell: {cell: {round: names}}."""
    cells = {}
    for row in rows:
        cells.setdefault(cell_of(row, labels), {}).setdefault(row["round"], set()).add(row["name"])
    return cells


def missing(names, earlier):
    """Those of the programs in `earlier` that `names` lack; an older build of tutti is nothing to keep."""
    return set(earlier) - set(names) - {"before"}


def merged(earlier, rows, labels):
    """The rows of a page that has `earlier` and gets `rows`, in the order of the page.

    A ratio is one within a round, so that a cell has the rows of one run only: those of now, unless one of their rounds
    lacks a program of earlier, as the last round of a measurement that was stopped may.
    """
    now = names_in_rounds(rows, labels)
    kept = {cell for cell, rounds in names_in_rounds(earlier, labels).items()
            if cell not in now or any(missing(names, set().union(*rounds.values())) for names in now[cell].values())}
    rows = [row for row in earlier if cell_of(row, labels) in kept] + [row for row in rows if cell_of(row, labels) not in kept]
    first_of = [{} for _ in labels]  # labels are in the order of their first rows
    for row in rows:
        for places, label in zip(first_of, labels):
            places.setdefault(row[label], len(places))
    return sorted(rows, key=lambda row: (row["ranks"], *(places[row[label]] for places, label in zip(first_of, labels)),
                                         row["bytes"]))


def rounds_of(rows, labels):
    """In how many rounds the cells were measured: 2, or 2 to 3."""
    rounds = {}
    for row in rows:
        rounds.setdefault(cell_of(row, labels), set()).add(row["round"])
    return range_of(map(len, rounds.values()))


def range_of(values):
    """The least and the largest, as a text."""
    values = sorted(values)
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def summarize(rows, labels, rivals):
    """One entry for each (labels, ranks, bytes): µs by name, and the advantages of Tutti's columns over each group of rivals."""
    cells = {}
    for row in rows:
        # Sizes under one element a rank are all measured as one element a rank: the last of them counts.
        cells.setdefault(cell_of(row, labels), {}).setdefault(row["name"], {})[row["round"]] = row["time_us"]
    summary = []
    for key, by_name in cells.items():
        entry = {**dict(zip((*labels, "ranks", "bytes"), key)),
                 "time_us": {name: statistics.median(rounds.values()) for name, rounds in by_name.items()}}
        for own, prefix in OURS.items():
            ours = by_name.get(own, {})
            for label, names in rivals.items():
                present = [by_name[n] for n in names if n in by_name]
                rounds = [r for r in ours if present and all(r in p for p in present)]  # the last one may be incomplete
                if rounds and not (label == "before" and own != "tutti"):  # the older build's buffers are in the arena
                    ratios = [min(p[r] for p in present) / ours[r] for r in rounds]
                    entry[ratio_of(prefix, label)] = statistics.median(ratios)
                    entry[rounds_of_ratio(prefix, label)] = [min(ratios), max(ratios)]
        summary.append(entry)
    return summary


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def facts(in_use):
    """When and where rows were measured, and how idle the machine was."""
    return {"date": datetime.date.today().isoformat(), "in_use": in_use,
            "machine": f"{CORES} cores of {processor()}, Linux {platform.release()}"}


def measured_by(measure):
    """The rows that `measure(rows)` appends, and why it was stopped before its end ("": it was not)."""
    rows = []
    try:
        measure(rows)
    # A program failed (SystemExit), or hung; hosts could not be made; or the user stops the script.
    except (KeyboardInterrupt, SystemExit, RuntimeError, subprocess.SubprocessError) as error:
        if not rows:
            raise
        print(error, file=sys.stderr)
        return rows, "by a signal" if isinstance(error, KeyboardInterrupt) else str(error).split("\n")[0]
    return rows, ""


def compare(options, programs, runs, write):
    """Measures, and has `write(rows, stopped)` write what was measured, all of it or what there was before a stop."""
    end_orderly()
    in_use = idle.wait_until_idle(options.loaded) if options.rounds > 0 else None  # without a round nothing is measured
    rows, stopped = measured_by(lambda rows: measure(runs, programs, rows))
    options.out.mkdir(parents=True, exist_ok=True)
    write([{**row, **facts(in_use)} for row in rows], stopped)
    if stopped:
        raise SystemExit(f"stopped ({stopped}); what was measured before is in {options.out}")
