#!/usr/bin/env python3
"""The speed of codecs beside memcpy, on one core, and beside an older build.

    bench/kernels/codecs.py PROGRAM [--before PROGRAM] [--before-instructions FILE] [--rounds 9] [--out FOLDER]

PROGRAM is the bench of the kernels: build/bench/bin/kernels_bench, or an older one. In each round every program runs
every case once, memcpy too, and programs take turns, because the speed of a shared machine drifts within minutes. A
figure is the median over the rounds, a ratio the median of the ratios within the rounds. Times are those of the thread
on its processor, without those in which something else had the processor. Instructions are those that
tests/codecs/instructions.cc counts, those of an older build what it was told to --write. Writes codecs.json and
codecs.md.

What memory allows is measured in the same rounds: traffic_bench.cc moves the bytes that a codec moves, and computes next
to nothing. Of its cases, which fetch memory ahead by different distances, the fastest counts in each round.
"""

import argparse
import datetime
import json
import math
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/hosts"))
import idle

IN_CACHE, OUT_OF_CACHE = 16 << 10, 16 << 20  # elements, as in codec_bench.cc
MEMCPY, TRAFFIC = "MemcpyOfElements", "Traffic"
DIRECTIONS = {"Encode": "encode", "Decode": "decode", "Accumulate": "decode and add"}
# How many bytes of fp32 become a byte of message, of the codecs whose traffic is measured.
RATIOS = {"bf16": 2, "fp16": 2, "uint8_block": 4, "minmax_uint8": 4, "uint4_block": 8}
# Cases of traffic_bench.cc, in words.
MOVES = {"read": "values are read", "update": "values are added to in place", "stream": "values are written past the cache",
         "Encode": "values are read, a message of 1/{} is written", "Decode": "a message of 1/{} is read, values are written",
         "Accumulate": "a message of 1/{} is read and added to values"}
# What out of the cache was to be reached, as a multiple of memcpy.
GOALS = {"Encode/uint8_block:block=1024": 1.8, "Accumulate/uint8_block:block=1024": 1.6, "Encode/bf16": 1.3,
         "Accumulate/bf16": 1.3}


def run(program):
    """The nanoseconds of every case of one run, by (name, elements)."""
    command = [program, f"--benchmark_filter={MEMCPY}|{TRAFFIC}|{'|'.join(DIRECTIONS)}", "--benchmark_min_time=0.03",
               "--benchmark_format=json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["benchmarks"]
    times = {}
    for row in rows:
        name, elements = row["name"].rsplit("/", 1)
        if name.startswith(TRAFFIC):
            name = name.rsplit("/", 1)[0]  # without the distance
        case = name, int(elements)
        times[case] = min(row["cpu_time"], times.get(case, math.inf))
    return times


def medians(rounds):
    """Of each case the GB/s of fp32, and how often memcpy takes the time of the case."""
    rows = {}
    for case in rounds[0]:
        if case[1] not in (IN_CACHE, OUT_OF_CACHE):
            continue
        speeds = [4 * case[1] / times[case] for times in rounds]
        ratios = [times[MEMCPY, case[1]] / times[case] for times in rounds]
        rows[f"{case[0]}/{case[1]}"] = {"gb_s": statistics.median(speeds), "memcpy": statistics.median(ratios)}
    return rows


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def compiler():
    return subprocess.run(["c++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def writes_past_the_cache(size):
    """Whether glibc's memcpy of `size` bytes writes past the cache; None where ld.so does not tell."""
    try:
        tunables = subprocess.run(["ld.so", "--list-tunables"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    threshold = re.search(r"x86_non_temporal_threshold: (0x[0-9a-f]+)", tunables)
    return size >= int(threshold[1], 16) if threshold else None


def moved(traffic, past_the_cache):
    """The bytes of an element that memory reads, writes, and reads so that the core owns the line that it writes."""
    name, _, ratio = traffic.partition(":")
    message = 4 / int(ratio) if ratio else 0
    return {MEMCPY: (4, 4, 0 if past_the_cache else 4), "read": (4, 0, 0), "update": (4, 4, 0), "stream": (0, 4, 0),
            "Encode": (4, message, message), "Decode": (message, 4, 4), "Accumulate": (4 + message, 4, 0)}[name]


def speed(rows, name, elements):
    row = rows and rows.get(f"{name}/{elements}")
    return f"{row['gb_s']:.1f}" if row else "—"


def ratio(rows, name):
    row = rows and rows.get(f"{name}/{OUT_OF_CACHE}")
    return f"{row['memcpy']:.2f}" if row else "—"


def allowed(rows, name):
    """How often memcpy takes the time in which memory moves the bytes of a case; a dash where they are not measured."""
    direction, codec = name.split("/")
    ratio_of_codec = RATIOS.get(codec.split(":")[0])
    return ratio(rows, f"{TRAFFIC}/{direction}:{ratio_of_codec}") if ratio_of_codec else "—"


def traffic_table(data):
    past = data["memcpy_writes_past_the_cache"]
    of_memcpy = {True: "writes past the cache", False: "writes into the cache",
                 None: "is taken to write into the cache, because `ld.so` does not tell,"}[past]
    cases = [case.split("/")[1] for case in data["now"] if case.startswith(TRAFFIC)]
    lines = ["## What memory allows", "",
             "Measured in the same rounds: one core moves the bytes that a codec moves, and computes next to nothing"
             " (`bench/kernels/traffic_bench.cc`), with memory fetched ahead by none or one of several distances, of which"
             " the fastest counts. A codec is hardly ever faster than this traffic. Bytes are those of an element of fp32 that"
             " are read, written, and read only because a core must own the line of the cache into which it writes. By bytes"
             " alone the traffic would be as many times faster than memcpy as it has fewer of them; measured, it is not,"
             f" because reads and writes take different times. memcpy of 64 MB {of_memcpy} on this machine.", "",
             "| | read | written | read to own | GB/s of fp32 | × memcpy by bytes | × memcpy measured |",
             "| --- |" + " ---: |" * 6]
    total = sum(moved(MEMCPY, past))
    for case in [MEMCPY, *cases]:
        name, _, part = case.partition(":")
        row = MEMCPY if case == MEMCPY else f"{TRAFFIC}/{case}"
        read, written, owned = moved(case, past)
        words = "memcpy" if case == MEMCPY else MOVES[name].format(part)
        lines.append(f"| {words} | {read:g} | {written:g} | {owned:g} | {speed(data['now'], row, OUT_OF_CACHE)} |"
                     f" {total / (read + written + owned):.2f} | {ratio(data['now'], row)} |")
    return lines + ["", *verdict(data["now"])]


def goals_above(rows, figure_of, words):
    """Those goals that are more than `figure_of` gives for their rows, in a sentence's list."""
    above = [f"`{name.split('/')[1]}` {DIRECTIONS[name.split('/')[0]]} ({goal}, {words} {figure_of(rows, name)})"
             for name, goal in GOALS.items() if goal > float(figure_of(rows, name))]
    return ", ".join(above) or "none"


def verdict(rows):
    return [f"Goals missed: {goals_above(rows, ratio, 'measured')}.", "",
            f"Goals that memory does not allow on this machine: {goals_above(rows, allowed, 'memory allows')}."]


def instructions(figures, name):
    direction, codec = name.split("/")
    counted = {"Encode": "encode", "Decode": "decode", "Accumulate": "add"}[direction]
    figure = figures and figures["instructions"].get(f"{codec} {counted}")
    return f"{figure:.2f}" if figure else "—"


def page(data):
    now, before = data["now"], data["before"]
    lines = ["# The speed of codecs", "",
             f"Written by `bench/kernels/codecs.py` on {data['date']}: {data['rounds']} rounds on one core of"
             f" {data['processor']}, {data['compiler']}. {idle.line([data['in_use']])} What others move through memory slows"
             " memcpy and codecs.", "",
             "GB/s of fp32 elements that are encoded or decoded, 64 MB of them (out of the cache) or 64 KB. × memcpy:"
             " how often `memcpy` of the same 64 MB takes this time in the same round (medians of ratios). Instructions"
             " are those per element with AVX2, as callgrind counts them; a test keeps them within 2 %"
             " (`tests/codecs/instructions.cc`). The bench takes the best instruction set of the processor, and buffers"
             " that begin at a page, on large pages where the kernel has them, as those of plans are. \"Memory allows\" is"
             " explained below.", "",
             "`tutti advise` has these figures, and takes for a codec the longer one of two times: that of 64 KB, which is the"
             " arithmetic's on this processor, and that of 64 MB, which is memory's, as a multiple of memcpy's where the"
             " training runs ([choosing a strategy](../choosing_a_strategy.md#which-strategy)).", "",
             "| | before | now | × memcpy before | × memcpy now | memory allows | goal | 64 KB before | 64 KB now | instructions before"
             " | now |", "| --- |" + " ---: |" * 10]
    lines.append(f"| memcpy | {speed(before, MEMCPY, OUT_OF_CACHE)} | {speed(now, MEMCPY, OUT_OF_CACHE)} | | | | |"
                 f" {speed(before, MEMCPY, IN_CACHE)} | {speed(now, MEMCPY, IN_CACHE)} | | |")
    names = {case.rsplit("/", 1)[0] for case in now if not case.startswith(TRAFFIC)} - {MEMCPY}
    for name in sorted(names, key=lambda n: n.split("/")[::-1]):
        direction, codec = name.split("/")
        goal = f"{GOALS[name]:.1f}" if name in GOALS else ""
        lines.append(f"| `{codec}` {DIRECTIONS[direction]} | {speed(before, name, OUT_OF_CACHE)} |"
                     f" {speed(now, name, OUT_OF_CACHE)} | {ratio(before, name)} | {ratio(now, name)} |"
                     f" {allowed(now, name)} | {goal} |"
                     f" {speed(before, name, IN_CACHE)} | {speed(now, name, IN_CACHE)} |"
                     f" {instructions(data['instructions_before'], name)} | {instructions(data['instructions'], name)} |")
    return "\n".join([*lines, "", *traffic_table(data)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--before")
    parser.add_argument("--before-instructions", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results")
    idle.add_loaded(parser)
    options = parser.parse_args()
    programs = {"now": options.program} | ({"before": options.before} if options.before else {})
    rounds = {name: [] for name in programs}
    in_use = idle.wait_until_idle(options.loaded)
    for number in range(options.rounds):
        for name in sorted(programs, reverse=number % 2 == 1):
            rounds[name].append(run(programs[name]))
    counted = options.before_instructions
    data = {"date": datetime.date.today().isoformat(), "processor": processor(), "compiler": compiler(),
            "rounds": options.rounds, "in_use": in_use,
            "memcpy_writes_past_the_cache": writes_past_the_cache(4 * OUT_OF_CACHE), "now": medians(rounds["now"]),
            "before": medians(rounds["before"]) if options.before else None,
            "instructions": json.loads((ROOT / "tests/codecs/instructions.json").read_text()),
            "instructions_before": json.loads(counted.read_text()) if counted else None}
    (options.out / "codecs.json").write_text(json.dumps(data, indent=1) + "\n")
    (options.out / "codecs.md").write_text(page(data))


main()
