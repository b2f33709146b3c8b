#!/usr/bin/env python3
"""Whether schedules are as fast as predicted: every schedule of every collective that has several, measured on this
machine over sizes, worlds and links, beside what `tutti bench` predicts.

    bench/selection/agreement.py [--rounds 3] [--ranks 2 4 8] [--json rows.json] [--page page.md]

A cell is a call (collective, size, world, links) and two schedules of which one took more than 20 % longer than the other
in every round. Printed are, by links and world, the share of cells in which, of the two schedules, the one predicted to be
faster was faster, and how much longer the chosen schedule took than the fastest one. A time is the mean over the calls, and
of the rounds the median. Rounds are interleaved. Every call starts from a barrier (--rewrite of `tutti bench`), so that the time of a single call is
measured and not the rate of many calls.

Links: mapped memory; messages inside a node; messages between nodes, of one rank each, over TCP. All nodes are on this
machine and share its cores; real nodes share no cores, so worlds between nodes have at most as many ranks as the machine
has cores. A collective for which nothing is predicted is left out. Nothing else may run on the machine. Needs
build/release (`make build`), or --tutti. Stopped by Ctrl-C or SIGTERM, or by a schedule that fails, the script writes
what it has measured by then, says so on the page, and exits with an error.
"""

import argparse
import collections
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "bench/hosts"), str(ROOT / "bench/peers")]
import idle
from comparison import facts, measured_by, range_of, rounds_of
from links import end_orderly
from pages import incomplete, of_versions
from peers import failed, run_program, tutti_rows

CORES = os.cpu_count()
DIFFERENT = 1.2  # two times differ if the ratio of the larger to the smaller is above this
SMALLEST, FACTOR = 4, 8  # bytes of the smallest call, and the ratio of a size to the next smaller one
LINKS = ("mapped", "messages", "nodes")
# A shell command that makes each rank a node of its own and becomes the program that follows, with its arguments.
AS_NODE = 'TUTTI_NODE=node$TUTTI_RANK exec "$0" "$@"'


def schedules_of(tutti):
    """The names of the schedules of each collective that has several."""
    page = subprocess.run([tutti, "docs", "schedules"], check=True, capture_output=True, text=True).stdout
    found = {}
    for section in page.split("\n## ")[1:]:
        collective = section.split("\n")[0]
        names = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        if len(names) > 1:
            found[collective] = names
    return found


def largest_served(tutti, collective, schedule, ranks, links, max_bytes):
    """Bytes of the largest call over these links that the schedule serves; 0 if it serves none."""
    command = [tutti, "plan", f"{collective}:{schedule}", "--ranks", str(ranks)] + ["--messages"] * (links != "mapped")
    size = SMALLEST
    while size * FACTOR <= max_bytes:
        size *= FACTOR
    while size and subprocess.run(command + ["--bytes", str(size)], capture_output=True).returncode != 0:
        size = size // FACTOR if size > SMALLEST else 0
    return size


def command_of(options, collective, schedule, ranks, links, largest):
    bench = [options.tutti, "bench", collective, "--schedule", schedule, "--rewrite", "-b", str(SMALLEST), "-e", str(largest),
             "-f", str(FACTOR), "--warmup", "3", "--min-time", str(options.min_time), "--json", "-"]
    if links == "nodes":
        return [options.tutti, "launch", "-n", str(ranks), "--", "sh", "-c", AS_NODE] + bench
    return bench + ["--ranks", str(ranks)] + ["--messages"] * (links == "messages")


def rows_of(options, collective, schedule, ranks, links, largest):
    """The rows of one start of `tutti bench`."""
    command = command_of(options, collective, schedule, ranks, links, largest)
    run = run_program(command)
    if run.returncode:
        raise failed(command, run.returncode, run.stderr)
    return [{"links": links, "ranks": ranks, "collective": collective, "schedule": schedule, "bytes": row["bytes"],
             "measured": row["time_us"], "predicted": row["predicted_us"], "version": row["version"],
             "program": row["program"]} for row in tutti_rows(options.tutti, run.stdout)]


def unpredicted(rows):
    """The collectives for which nothing is predicted."""
    return dict.fromkeys(row["collective"] for row in rows if row["predicted"] is None)


def measure(options, rows):
    """Appends rows of {round, links, ranks, collective, schedule, bytes, measured, predicted, version, program} and of
    facts(); times are in microseconds."""
    schedules = schedules_of(options.tutti)
    worlds = [(links, ranks) for ranks in options.ranks for links in options.links if links != "nodes" or ranks <= CORES]
    in_use = idle.wait_until_idle(options.loaded)
    for turn in range(options.rounds):
        for links, ranks in worlds:
            for collective, names in schedules.items():
                for schedule in names:
                    largest = largest_served(options.tutti, collective, schedule, ranks, links, options.max_bytes)
                    if largest and collective not in unpredicted(rows):
                        rows += [{"round": turn, **row, **facts(in_use)}
                                 for row in rows_of(options, collective, schedule, ranks, links, largest)]
            print(f"# round {turn + 1} of {options.rounds}: {ranks} ranks, {links}", file=sys.stderr, flush=True)


def calls_of(rows):
    """{(links, ranks, collective, bytes): {schedule: ([measured of each round], predicted)}}"""
    calls = collections.defaultdict(dict)
    for row in rows:
        call = calls[row["links"], row["ranks"], row["collective"], row["bytes"]]
        call.setdefault(row["schedule"], ([], row["predicted"]))[0].append(row["measured"])
    return calls


def cells_of(call):
    """(faster, slower) of every two schedules that differ in every round."""
    for pair in itertools.combinations(sorted(call), 2):
        for fast, slow in (pair, pair[::-1]):
            rounds = zip(call[fast][0], call[slow][0])
            if all(b > DIFFERENT * a for a, b in rounds):
                yield fast, slow


def summarize(calls):
    """{(links, ranks): [cells, agreeing cells, [slowdown of each choice]]} and the cells that disagree.

    Each of the calls has several schedules.
    """
    worlds = collections.defaultdict(lambda: [0, 0, []])
    wrong = []
    for (links, ranks, collective, size), call in sorted(calls.items()):
        world = worlds[links, ranks]
        for fast, slow in cells_of(call):
            agrees = call[fast][1] < call[slow][1]
            world[0] += 1
            world[1] += agrees
            if not agrees:
                wrong.append((links, ranks, collective, size, fast, slow, call))
        took = {name: statistics.median(times) for name, (times, _) in call.items()}
        chosen = min(sorted(call), key=lambda name: call[name][1])
        world[2].append(took[chosen] / min(took.values()))
    return worlds, wrong


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def page_of(rows, stopped=""):
    left_out = unpredicted(rows)
    rows = [row for row in rows if row["collective"] not in left_out]
    calls = {key: call for key, call in calls_of(rows).items() if len(call) > 1}
    if not calls:
        raise SystemExit("of no call were two schedules measured for which times are predicted")
    worlds, wrong = summarize(calls)
    total = [sum(world[0] for world in worlds.values()), sum(world[1] for world in worlds.values())]
    slowdowns = [s for world in worlds.values() for s in world[2]]
    mean = math.exp(statistics.mean(map(math.log, slowdowns)))
    lines = [
        "# Predicted and measured order of schedules", "", *incomplete(stopped),
        f"{range_of(row['date'] for row in rows)}, {'; '.join(dict.fromkeys(row['machine'] for row in rows))}, "
        f"tutti {of_versions(rows)}.",
        f"Written by `bench/selection/agreement.py`: medians of {rounds_of(rows, ('links', 'collective', 'schedule'))} rounds, "
        "of means over the calls.",
        "[selection.md](../selection.md) says what is predicted and how.", "",
        idle.line([row["in_use"] for row in rows]), "",
        *([f"Left out, because nothing is predicted for it: {', '.join(left_out)}.", ""] if left_out else []),
        f"Of {total[0]} cells (two schedules of one call, of which one took more than 20 % longer in every round) "
        f"{total[1]} have the predicted order: **{percent(total[1], total[0])}**. The chosen schedule took "
        f"{100 * (mean - 1):.0f} % longer than the fastest one, as the geometric mean over {len(slowdowns)} calls.", "",
        "| links | ranks | cells | predicted order is measured | time of the choice over the fastest: mean, worst |",
        "|---|---|---|---|---|"]
    for (links, ranks), (cells, agreeing, slow) in sorted(worlds.items()):
        lines.append(f"| {links} | {ranks} | {cells} | {percent(agreeing, cells)} | "
                     f"{math.exp(statistics.mean(map(math.log, slow))):.2f}, {max(slow):.2f} |")
    lines += ["", "Cells in which the predicted order is not the measured one (µs):", "",
              "| links | ranks | call | faster | slower | measured | predicted |", "|---|---|---|---|---|---|---|"]
    for links, ranks, collective, size, fast, slow, call in wrong:
        measured = " / ".join(f"{statistics.median(call[name][0]):.1f}" for name in (fast, slow))
        predicted = " / ".join(f"{call[name][1]:.1f}" for name in (fast, slow))
        lines.append(f"| {links} | {ranks} | {collective} of {size} bytes | {fast} | {slow} | {measured} | {predicted} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutti", type=pathlib.Path, default=ROOT / "build/release/bin/tutti")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--links", nargs="+", choices=LINKS, default=list(LINKS))
    parser.add_argument("--max-bytes", type=int, default=16 << 20)
    parser.add_argument("--min-time", type=float, default=0.02, help="seconds that the timed calls of one size take")
    parser.add_argument("--json", type=pathlib.Path,
                        help="file for the rows; when the file exists, its rows are used and nothing is measured")
    idle.add_loaded(parser)
    parser.add_argument("--page", type=pathlib.Path, help="file for the page; default: standard output")
    options = parser.parse_args()
    options.tutti = options.tutti.resolve()
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
        rows, stopped = kept["rows"], kept["stopped"]
    else:
        end_orderly()
        rows, stopped = measured_by(lambda rows: measure(options, rows))
        if options.json:
            options.json.write_text(json.dumps({"stopped": stopped, "rows": rows}), encoding="utf-8")
    page = page_of(rows, stopped)
    if options.page:
        options.page.write_text(page, encoding="utf-8")
    else:
        print(page)
    if stopped:
        raise SystemExit(f"stopped ({stopped})")


if __name__ == "__main__":
    main()
