#!/usr/bin/env python3
"""Collectives (f32, sum) of Tutti, Open MPI, MPICH and, for all_reduce, gloo on this machine, side by side.

    bench/peers/compare.py [--collective NAME...] [--ranks 2 4 8] [-b 4] [-e 256M] [-f 4] [--rounds 5] [--only NAME...]
                           [--before PROGRAM] [--out FOLDER]

Rounds are interleaved: in each, every library measures the same group of sizes right after the others, in an order that
rotates, because the speed of a shared machine drifts within minutes. A figure is the median over the rounds; a ratio is
the median of the ratios within each round. Writes into docs/results: all_reduce.json, all_reduce.md and all_reduce.svg
when all_reduce was measured, collectives.json and collectives.md when others were.
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

from peers import COLLECTIVES, CORES, MPIS, PEERS, PYTHON, ROOT, Run, tutti

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# The largest size of each group of sizes that one start of a program measures, because a start costs a second or more.
GROUP_ENDS = (16 << 10, 4 << 20, 1 << 62)
LARGE = 64 << 10  # bytes from which on the page of the collectives lists where Tutti is behind
RIVALS = {"best_mpi": MPIS, "gloo": ("gloo",), "before": ("before",)}


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


def has(name, collective):
    return name != "gloo" or collective == "all_reduce"


def runs(options):
    """Every (round, Run) in the order of measurement."""
    for collective in options.collective:
        for ranks in options.ranks:
            for rewrite in (False, True) if collective == "all_reduce" else (False,):
                for group in groups_of(options.begin, options.end, options.factor):
                    for round_number in range(options.rounds):
                        yield round_number, Run(collective, ranks, group, options.factor, rewrite, options.seconds)


def measure(options, programs, rows):
    """Appends a row for each measurement to `rows`, which keeps the rows made so far when measure is interrupted."""
    for round_number, run in runs(options):
        names = [name for name in programs if has(name, run.collective)]
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"{run.collective}, {run.ranks} ranks{', rewriting' if run.rewrite else ''}, "
                  f"{show_bytes(run.sizes[0])} to {show_bytes(run.sizes[-1])}, round {round_number + 1}: {name}",
                  file=sys.stderr, flush=True)
            rows += [{**row, "collective": run.collective, "name": name, "rewrite": run.rewrite, "round": round_number}
                     for row in programs[name](run)]


def summarize(rows):
    """One entry for each (collective, rewrite, ranks, bytes): median µs by name, and Tutti's advantage over others."""
    cells = {}
    for row in rows:
        # Sizes under one element a rank are all measured as one element a rank: the last of them counts.
        key = (COLLECTIVES.index(row["collective"]), row["rewrite"], row["ranks"], row["bytes"])
        cells.setdefault(key, {}).setdefault(row["name"], {})[row["round"]] = row["p50_us"]
    summary = []
    for (collective, rewrite, ranks, nbytes), by_name in sorted(cells.items()):
        entry = {"collective": COLLECTIVES[collective], "rewrite": rewrite, "ranks": ranks, "bytes": nbytes,
                 "p50_us": {name: statistics.median(rounds.values()) for name, rounds in by_name.items()}}
        ours = by_name.get("tutti", {})
        for label, names in RIVALS.items():
            present = [by_name[n] for n in names if n in by_name]
            rounds = [r for r in ours if present and all(r in p for p in present)]  # the last round may be incomplete
            if rounds:
                entry[f"times_faster_than_{label}"] = round(
                    statistics.median(min(p[r] for p in present) / ours[r] for r in rounds), 2)
        summary.append(entry)
    return summary


def table(entries, names, with_collective=False):
    names = [n for n in names if any(n in e["p50_us"] for e in entries)]
    ratios = [r for r in RIVALS if any(f"times_faster_than_{r}" in e for e in entries)]
    titles = ["collective"] * with_collective + ["ranks", "size", *names]
    titles += ["× " + r.replace("_", " ") for r in ratios]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + " --- |" * with_collective + " ---: |" * (len(titles) - with_collective)
    for e in entries:
        cells = [e["collective"]] * with_collective + [str(e["ranks"]), show_bytes(e["bytes"])]
        cells += [show_us(e["p50_us"].get(n)) for n in names]
        cells += [f"{e[key]:.2f}" if (key := f"times_faster_than_{r}") in e else "—" for r in ratios]
        yield "| " + " | ".join(cells) + " |"


def worst(entry):
    """Tutti's advantage over the best of the other libraries; an older build of Tutti does not count."""
    return min([entry[k] for r in RIVALS if r != "before" and (k := f"times_faster_than_{r}") in entry], default=1e9)


def where_behind(title, entries, names, with_collective=False):
    if any("tutti" in e["p50_us"] for e in entries):
        yield title + "\n"
        behind = sorted((e for e in entries if worst(e) < 1), key=worst)
        yield from table(behind, names, with_collective) if behind else ["Nowhere."]


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def heading(result, page):
    if result["stopped"]:
        yield f"**Incomplete**: the measurement was stopped ({result['stopped']}).\n"
    yield f"{result['date']}, {result['machine']}. Medians of {result['rounds']} interleaved rounds, µs; f32, sum,"
    yield "in place." if page == "all_reduce" else "out of place, but broadcast in place, as MPI has it."
    yield "`tutti` has its buffers in the shared arena, `tutti-private` in ordinary memory. Written by"
    yield f"`bench/peers/compare.py`; every row of every round, with p99 and maximum, is in `{page}.json`.\n"
    if "before" in result["versions"]:
        yield "`before` is an older build of `tutti`, `× before` the time of `before` / the time of `tutti`.\n"
    yield "Versions: " + "; ".join(f"{n}: {v}" for n, v in result["versions"].items()) + ".\n"


def all_reduce_page(result, names):
    yield "# all_reduce beside its peers\n"
    yield from heading(result, "all_reduce")
    for rewrite in (False, True):
        entries = [e for e in result["summary"] if e["rewrite"] == rewrite]
        yield "## Every rank rewrites its whole buffer before each call" if rewrite else "## The same buffer again"
        yield from where_behind("\n### Where Tutti is behind", entries, names)
        yield "\n### All sizes\n"
        yield from table(entries, names)
        yield ""


def collectives_page(result, names):
    yield "# Collectives beside their peers\n"
    yield from heading(result, "collectives")
    yield "The same buffers are used again in every call; the root is rank 0. A size is the bytes of the larger of a"
    yield "rank's input and output. gloo is measured for [all_reduce](all_reduce.md) only.\n"
    # A size that is no multiple of the ranks is measured as the next smaller multiple.
    large = [e for e in result["summary"] if e["bytes"] > LARGE - 4 * e["ranks"]]
    yield from where_behind(f"## Where Tutti is behind, from {show_bytes(LARGE)}", large, names, True)
    for collective in dict.fromkeys(e["collective"] for e in result["summary"]):
        yield f"\n## {collective}\n"
        yield from table([e for e in result["summary"] if e["collective"] == collective], names)


def write_page(folder, page, markdown, result, names):
    lines = ["{"] + [f'"{k}": {json.dumps(v)},' for k, v in result.items() if k not in ("summary", "rows")]
    for key, end in (("summary", "],"), ("rows", "]\n}\n")):
        lines += [f'"{key}": [', ",\n".join(json.dumps(entry) for entry in result[key]), end]
    (folder / f"{page}.json").write_text("\n".join(lines))
    (folder / f"{page}.md").write_text("\n".join(markdown(result, names)).rstrip() + "\n")
    print((folder / f"{page}.md").read_text())


def write_results(folder, facts, names, rows):
    folder.mkdir(parents=True, exist_ok=True)
    for page, markdown in (("all_reduce", all_reduce_page), ("collectives", collectives_page)):
        own = [row for row in rows if (row["collective"] == "all_reduce") == (page == "all_reduce")]
        if own:
            versions = {row["name"]: " ".join(row["version"].split()) for row in own}
            result = {**facts, "versions": versions, "summary": summarize(own), "rows": own}
            write_page(folder, page, markdown, result, names)
    if any(row["collective"] == "all_reduce" for row in rows):
        plot(folder)


def plot(folder):
    if PYTHON.exists():
        subprocess.run([PYTHON, pathlib.Path(__file__).with_name("plot.py"), folder])
    else:
        print(f"no plot: {PYTHON} is missing: run `.ci/install plots`", file=sys.stderr)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collective", nargs="+", choices=["all", *COLLECTIVES], default=["all_reduce"],
                        metavar="NAME", help="what to measure: all, or some of " + " ".join(COLLECTIVES))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("-b", "--begin", type=parse_bytes, default=4)
    parser.add_argument("-e", "--end", type=parse_bytes, default=256 << 20)
    parser.add_argument("-f", "--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="bound on the timed calls of one size")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=" ".join(PEERS))
    parser.add_argument("--before", type=pathlib.Path, metavar="PROGRAM",
                        help="an older build of tutti, measured in the same rounds as the column `before`")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results")
    options = parser.parse_args()
    if options.before and not options.before.exists():
        parser.error(f"--before {options.before} is missing")
    if "all" in options.collective:
        options.collective = COLLECTIVES
    return options


def main():
    options = parse_arguments()
    programs = {name: PEERS[name] for name in options.only}
    if options.before:
        programs["before"] = tutti("arena", options.before.resolve())
    for collective in options.collective:
        if not any(has(name, collective) for name in programs):
            raise SystemExit(f"gloo is measured for all_reduce only, not for {collective}")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"load average {load:.1f}: another program runs on this machine, and libraries whose ranks spin "
              "while they wait will look far slower than they are",
              file=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = []
    stopped = ""
    try:
        measure(options, programs, rows)
    except (KeyboardInterrupt, SystemExit) as error:  # SystemExit: a program that a library was measured with failed
        stopped = "by a signal" if isinstance(error, KeyboardInterrupt) else str(error).split("\n")[0]
        if not rows:
            raise
    wrong = [row for row in rows if row["wrong"]]
    if wrong:
        raise SystemExit(f"wrong results: {wrong[0]}")
    facts = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{CORES} cores of {processor()}, Linux {platform.release()}, load {load:.1f} before the first run",
        "rounds": options.rounds,
        "stopped": stopped,
    }
    write_results(options.out, facts, list(programs), rows)
    if stopped:
        raise SystemExit(f"stopped ({stopped}); what was measured before is in {options.out}")


if __name__ == "__main__":
    main()
