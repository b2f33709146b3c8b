#!/usr/bin/env python3
"""all_reduce (f32, sum, in place) of Tutti, Open MPI, MPICH and gloo on this machine, side by side.

    bench/peers/compare.py [--ranks 2 4 8] [-b 4] [-e 256M] [-f 4] [--rounds 5] [--only NAME...] [--out FOLDER]

Rounds are interleaved: in each, every library measures the same group of sizes right after the others, in an order that
rotates, because the speed of a shared machine drifts within minutes. A figure is the median over the rounds; a ratio is
the median of the ratios within each round. Writes all_reduce.json, all_reduce.md and all_reduce.svg into docs/results.
Stopped by Ctrl-C or SIGTERM, or by a library that fails, the script writes what it has measured by then, says so on the
page, and exits with an error.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys

from peers import CORES, MPIS, PEERS, PYTHON, ROOT, Run

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Sizes measured by one start of a program: a start costs a second or more, and drift within a group cancels out.
GROUP_ENDS = (16 << 10, 4 << 20, 1 << 62)


def parse_bytes(text):
    unit = UNITS.get(text[-1].upper())
    return int(text[:-1]) * unit if unit else int(text)


def show_bytes(n):
    for suffix in ("G", "M", "K"):
        if n % UNITS[suffix] == 0:
            return f"{n // UNITS[suffix]} {suffix}B"
    return f"{n} B"


def show_us(us):
    return "—" if us is None else f"{us:.2f}" if us < 10 else f"{us:,.0f}"


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


def measure(options, rows):
    """Appends a row for each measurement to `rows`, which holds those made so far when this is interrupted."""
    for ranks in options.ranks:
        for rewrite in (False, True):
            for group in groups_of(options.begin, options.end, options.factor):
                for round_number in range(options.rounds):
                    turn = round_number % len(options.only)
                    for name in options.only[turn:] + options.only[:turn]:
                        print(f"{ranks} ranks{', rewriting' if rewrite else ''}, {show_bytes(group[0])} to "
                              f"{show_bytes(group[-1])}, round {round_number + 1}: {name}", file=sys.stderr, flush=True)
                        run = Run(ranks, group, options.factor, rewrite, options.seconds)
                        rows += [{**row, "name": name, "rewrite": rewrite, "round": round_number}
                                 for row in PEERS[name](run)]


def summarize(rows):
    """One entry for each (rewrite, ranks, bytes): median µs by name, and Tutti's advantage over the others."""
    cells = {}
    for row in rows:
        key = (row["rewrite"], row["ranks"], row["bytes"])
        cells.setdefault(key, {}).setdefault(row["name"], {})[row["round"]] = row["p50_us"]
    summary = []
    for (rewrite, ranks, nbytes), by_name in sorted(cells.items()):
        entry = {"rewrite": rewrite, "ranks": ranks, "bytes": nbytes,
                 "p50_us": {name: statistics.median(rounds.values()) for name, rounds in by_name.items()}}
        ours = by_name.get("tutti", {})
        for label, names in (("best_mpi", MPIS), ("gloo", ("gloo",))):
            present = [by_name[n] for n in names if n in by_name]
            rounds = [r for r in ours if present and all(r in p for p in present)]  # the last one may be incomplete
            if rounds:
                entry[f"times_faster_than_{label}"] = round(
                    statistics.median(min(p[r] for p in present) / ours[r] for r in rounds), 2)
        summary.append(entry)
    return summary


def table(entries, names):
    ratios = [r for r in ("times_faster_than_best_mpi", "times_faster_than_gloo") if any(r in e for e in entries)]
    titles = [*names, *("× " + r.split("than_")[1].replace("_", " ") for r in ratios)]
    yield "| ranks | size | " + " | ".join(titles) + " |"
    yield "|" + " ---: |" * (2 + len(names) + len(ratios))
    for e in entries:
        cells = [show_us(e["p50_us"].get(n)) for n in names] + [f"{e[r]:.2f}" if r in e else "—" for r in ratios]
        yield f"| {e['ranks']} | {show_bytes(e['bytes'])} | " + " | ".join(cells) + " |"


def worst(entry):
    return min([entry[k] for k in entry if k.startswith("times_faster")], default=1e9)


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def markdown(result, names):
    yield "# all_reduce beside its peers\n"
    if result["stopped"]:
        yield f"**Incomplete**: the measurement was stopped ({result['stopped']}).\n"
    yield f"{result['date']}, {result['machine']}. Medians of {result['rounds']} interleaved rounds, µs; f32, sum,"
    yield "in place. `tutti` has its buffers in the shared arena, `tutti-private` in ordinary memory. Written by"
    yield "`bench/peers/compare.py`; every row of every round, with p99 and maximum, is in `all_reduce.json`.\n"
    yield "Versions: " + "; ".join(f"{n}: {v}" for n, v in result["versions"].items()) + ".\n"
    for rewrite in (False, True):
        entries = [e for e in result["summary"] if e["rewrite"] == rewrite]
        yield "## Every rank rewrites its whole buffer before each call" if rewrite else "## The same buffer again"
        behind = sorted((e for e in entries if worst(e) < 1), key=worst)
        if any("tutti" in e["p50_us"] for e in entries):
            yield "\n### Where Tutti is behind\n"
            yield from table(behind, names) if behind else ["Nowhere."]
        yield "\n### All sizes\n"
        yield from table(entries, names)
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("-b", "--begin", type=parse_bytes, default=4)
    parser.add_argument("-e", "--end", type=parse_bytes, default=256 << 20)
    parser.add_argument("-f", "--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="bound on the timed calls of one size")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=" ".join(PEERS))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results")
    options = parser.parse_args()

    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"load average {load:.1f}: something else runs here, and what spins will look far worse than it is",
              file=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = []
    stopped = ""
    try:
        measure(options, rows)
    except (KeyboardInterrupt, SystemExit) as error:  # SystemExit: a program that a library was measured with failed
        stopped = "by a signal" if isinstance(error, KeyboardInterrupt) else str(error).split("\n")[0]
        if not rows:
            raise
    wrong = [row for row in rows if row["wrong"]]
    if wrong:
        raise SystemExit(f"wrong results: {wrong[0]}")
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{CORES} cores of {processor()}, Linux {platform.release()}, load {load:.1f} before the first run",
        "rounds": options.rounds,
        "stopped": stopped,
        "versions": {row["name"]: " ".join(row["version"].split()) for row in rows},
        "summary": summarize(rows),
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    lines = ["{"] + [f'"{k}": {json.dumps(v)},' for k, v in result.items() if k not in ("summary", "rows")]
    for key, end in (("summary", "],"), ("rows", "]\n}\n")):
        lines += [f'"{key}": [', ",\n".join(json.dumps(entry) for entry in result[key]), end]
    (options.out / "all_reduce.json").write_text("\n".join(lines))
    (options.out / "all_reduce.md").write_text("\n".join(markdown(result, options.only)).rstrip() + "\n")
    print((options.out / "all_reduce.md").read_text())
    if PYTHON.exists():
        subprocess.run([PYTHON, pathlib.Path(__file__).with_name("plot.py"), options.out])
    else:
        print(f"no plot: {PYTHON} is missing: run `.ci/install plots`", file=sys.stderr)
    if stopped:
        raise SystemExit(f"stopped ({stopped}); what was measured before is in {options.out}")


if __name__ == "__main__":
    main()
