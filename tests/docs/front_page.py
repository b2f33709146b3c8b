#!/usr/bin/env python3
"""README.md starts with two commands, and what its text says of pictures, code and the command is so.

    tests/docs/front_page.py TUTTI      (TUTTI: the command)

The figures beside the first two pictures are those of docs/results: all_reduce.json, collectives.json, hosts.json,
hosts_collectives.json, pytorch.json and lightning.json; the C++ code is that of docs/examples/train_distributed.cc; the
names of collectives are the headings of docs/schedules.md, and those of strategies the pages of docs/algorithms, which
other tests compare with the program. The commands that need neither ranks nor files are run.
"""

import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE = 64 << 10  # bytes


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def results(name):
    return json.loads(read(f"docs/results/{name}.json"))


def all_reduce():
    result = results("all_reduce")
    cells = result["summary"]
    cores, = {int(machine.split()[0]) for machine in result["machine"].split("; ")}

    # The ratios to the fastest that docs/results/all_reduce.md has: medians over the rounds, or all (least, most) of single
    # rounds. `memory` is "private_" for ordinary memory.
    def speedups(large, rewrites, memory="", most_ranks=8, rounds=False):
        chosen = [cell for cell in cells if (cell["bytes"] >= LARGE) == large and cell["rewrite"] in rewrites
                  and cell["ranks"] <= most_ranks]
        names = [f"{memory}times_faster_than_{rival}" for rival in ("best_mpi", "gloo")]
        if not rounds:
            return [min(cell[name] for name in names) for cell in chosen]
        return [min(ratios) for cell in chosen for ratios in zip(*(cell[f"{name}_in_rounds"] for name in names))]

    both, memories = (False, True), ("", "private_")
    shared, ordinary = (speedups(True, both, memory) for memory in memories)
    *some, last = sorted({cell["ranks"] for cell in cells})
    yield f"on {', '.join(map(str, some))} and {last} ranks of one machine"
    yield f"of 64 KB or more is {min(shared):.1f} to {max(shared):.0f} times as fast"
    yield f"in ordinary memory, {min(ordinary):.1f} to {max(ordinary):.1f} times"
    shared_rounds, ordinary_rounds = (speedups(True, both, memory, rounds=True) for memory in memories)
    yield (f"medians of {result['rounds']} rounds on {cores} cores; single rounds lie between {min(shared_rounds):.1f} and {max(shared_rounds):.0f}, "
           f"in ordinary memory between {min(ordinary_rounds):.1f} and {max(ordinary_rounds):.1f}")
    own_core, rewritten = speedups(True, both, most_ranks=cores), speedups(True, (True,))
    yield (f"With a core for each rank the most is {max(own_core):.0f}; with buffers that are rewritten before each call, as in "
           f"training, {max(rewritten):.0f}")
    behind, ordinary_behind = (max(sum(s < 1 for s in speedups(False, (rewrite,), memory)) for rewrite in both)
                               for memory in memories)
    cases = len(speedups(False, (False,)))
    yield f"64 KB Tutti is slower than the fastest in {behind} of {cases} cases, in ordinary memory in {ordinary_behind}"


def other_collectives():
    # Of sizes that are no multiple of the ranks the next smaller multiple is measured.
    cells = [cell for cell in results("collectives")["summary"] if cell["bytes"] > LARGE - 4 * cell["ranks"]]
    behind, ordinary = (sum(cell[f"{memory}times_faster_than_best_mpi"] < 1 for cell in cells) for memory in ("", "private_"))
    yield f"Tutti is behind the best MPI in {behind} of {len(cells)} cases, in ordinary memory in {ordinary}"


def in_megabits(rate):
    return int(rate.replace("gbit", "000").replace("mbit", ""))


def words_of(rate):
    return rate.replace("gbit", " Gb/s").replace("mbit", " Mb/s")


def across_hosts():
    cells, others = (results(name)["summary"] for name in ("hosts", "hosts_collectives"))
    ratios, others = ([cell["times_faster_than_best_peer"] for cell in of] for of in (cells, others))
    slowest, *_, fastest = sorted({cell["rate"] for cell in cells}, key=in_megabits)
    yield f"On links of {words_of(slowest)} to {words_of(fastest)} an all_reduce is {min(ratios):.1f} to {max(ratios):.1f} times as fast as that of the best"
    yield f"behind the best in {sum(ratio < 1 for ratio in others)} of {len(others)} cases"
    of_links, = (result["seconds"] for result in results("pytorch")["results"]
                 if (result["link"], result["ranks"]) == ("1gbit", 4))
    step, = (seconds for name, seconds in of_links.items() if "MLP" in name)
    tutti, coded, gloo = (statistics.median(step[name]) for name in ("tutti", "tutti, bytegrad", "gloo"))
    yield f"On 4 hosts at 1 Gb/s a step of DDP with exact sums took {tutti / gloo:.1f} times as long as on gloo"
    yield f"with `bytegrad` {coded / gloo:.1f} times"


def lightning():
    ends = {run["strategy"]: run["points"][-1] for run in results("lightning")["runs"]
            if run["link"] == "100mbit"}
    (coded_s, coded), (gloo_s, gloo), (exact_s, _) = (ends[name] for name in ("tutti:bytegrad", "ddp on gloo", "ddp on tutti"))
    yield f"trains four epochs in {coded_s:.0f} s, DDP on gloo (grey) in {gloo_s:.0f} s"
    yield f"to {100 * coded:.1f} % and {100 * gloo:.1f} % accuracy"
    yield f"exact sums by Tutti take {exact_s:.0f} s (one run each, on {results('lightning')['date']}"


def failures(tutti, commands):
    with tempfile.TemporaryDirectory() as folder:
        for words in map(shlex.split, commands):
            if words[1] in ("plan", "advise", "docs", "info"):
                ran = subprocess.run([tutti, *words[1:]], capture_output=True, text=True, cwd=folder)
                if ran.returncode:
                    yield f"has a command that fails: {shlex.join(words)}: {ran.stderr}"


def section(page, title):
    return re.search(rf"^## {title}\n(.*?)^## ", page, re.M | re.S)[1]


def main():
    page = read("README.md")
    prose = " ".join(page.split())
    wrong = [f"does not say: {words}" for words in [*all_reduce(), *other_collectives(), *across_hosts(), *lightning()] if words not in prose]

    commands = re.search(r"(?:^    .*\n)+", page, re.M)[0]
    if re.findall(r"^    (\S+ \S+)  ", commands, re.M) != ["make quickstart", "make test"] or commands.count("\n") != 2:
        wrong.append(f"starts with other commands than make quickstart and make test:\n{commands}")

    program = read("docs/examples/train_distributed.cc")
    cpp = section(page, "From one process to many").split("**In Python**")[0]
    lines = [line.partition("//")[0].strip() for line in re.findall(r"^    (.*)", cpp, re.M)]
    wrong += [f"shows a line that train_distributed.cc lacks: {line}" for line in lines if line not in program]

    named = re.split(r",? and |, ", section(page, "Collectives").split(", for any")[0].replace("\n", " ").strip())
    printed = re.findall(r"^## (\w+)", read("docs/schedules.md"), re.M)
    wrong += [f"names {name} in only one of README.md and docs/schedules.md" for name in sorted(set(named) ^ set(printed))]

    named = re.findall(r"^\| `(\w+)`", section(page, "Algorithms"), re.M)
    pages = [path.stem for path in (ROOT / "docs/algorithms").glob("*.md")]
    wrong += [f"names {name} in only one of README.md and docs/algorithms" for name in sorted(set(named) ^ set(pages))]

    commands = [line.partition("  #")[0] for line in re.findall(r"^    (tutti .*)", section(page, "The command"), re.M)]
    wrong += failures(pathlib.Path(sys.argv[1]).resolve(), commands)

    print("\n".join(f"README.md {problem}" for problem in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
