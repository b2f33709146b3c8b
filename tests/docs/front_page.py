#!/usr/bin/env python3
"""README.md starts with two commands, and what its text says of pictures, code and the command is so.

    tests/docs/front_page.py TUTTI      (TUTTI: the command)

The figures beside the first two pictures are those of docs/results/all_reduce.json and lightning.json; the C++ code is
that of docs/examples/train_distributed.cc; the names of collectives are the headings of docs/schedules.md, and those of
strategies the pages of docs/algorithms, which other tests compare with the program. The commands that need neither ranks
nor files are run.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGE = 64 << 10  # bytes


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def all_reduce():
    cells = json.loads(read("docs/results/all_reduce.json"))["summary"]

    # The medians over the rounds of the ratio to the fastest, as the columns of docs/results/all_reduce.md. `memory` is
    # "private_" for ordinary memory.
    def speedups(large, rewrite, memory=""):
        return [min(cell[f"{memory}times_faster_than_best_mpi"], cell[f"{memory}times_faster_than_gloo"])
                for cell in cells if (cell["bytes"] >= LARGE, cell["rewrite"]) == (large, rewrite)]

    shared, ordinary = ([*speedups(True, False, memory), *speedups(True, True, memory)] for memory in ("", "private_"))
    yield f"of 64 KB or more is {min(shared):.1f} to {max(shared):.0f} times as fast"
    yield f"in ordinary memory, {min(ordinary):.1f} to {max(ordinary):.1f} times"
    behind, ordinary_behind = (max(sum(s < 1 for s in speedups(False, rewrite, memory)) for rewrite in (False, True))
                               for memory in ("", "private_"))
    cases = len(speedups(False, False))
    yield f"64 KB Tutti is slower than the fastest in {behind} of {cases} cases, in ordinary memory in {ordinary_behind}"


def lightning():
    ends = {run["strategy"]: run["points"][-1] for run in json.loads(read("docs/results/lightning.json"))["runs"]
            if run["link"] == "100mbit"}
    (coded_s, coded), (gloo_s, gloo), (exact_s, _) = (ends[name] for name in ("tutti:bytegrad", "ddp on gloo", "ddp on tutti"))
    yield f"trains four epochs in {coded_s:.0f} s, DDP on gloo (grey) in {gloo_s:.0f} s"
    yield f"to {100 * coded:.1f} % and {100 * gloo:.1f} % accuracy"
    yield f"exact sums by Tutti take {exact_s:.0f} s"


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
    wrong = [f"does not say: {words}" for words in [*all_reduce(), *lightning()] if words not in prose]

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
