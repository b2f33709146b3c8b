#!/usr/bin/env python3
"""Measures Tutti on the GPU of this machine, within ten minutes: gpu_bench [--results FOLDER] [--minutes N]

Writes bench.json, bench.txt and the output of every leg to the folder (./results). Exit statuses are those of gpu_suite.
Links of 10 and 1 Gb/s are made of the loopback interface of a network of the programs' own, which needs the right to
make one; otherwise they are left out, and the results say so.
"""

import argparse
import json
import re
import sys

import legs
import machine

LINKS = ("10gbit", "1gbit")
ELEMENTS = re.compile(r"^(\d+) elements")
KERNEL = re.compile(r"^(\S.*?) +([\d.]+) us +([\d.]+) GB/s +(\d+) % of the copy$")


def kernel_figures(text):
    """The figures of what `gpu_kernels speed` prints."""
    figures = {}
    megabytes = 0
    for line in text.splitlines():
        if found := ELEMENTS.match(line):
            megabytes = int(found.group(1)) * 4 >> 20
        elif found := KERNEL.match(line):
            name, microseconds, rate, share = found.groups()
            figures[f"kernel {name}, {megabytes} MB"] = {
                "value": float(rate), "unit": "GB/s", "share_of_copy": int(share) / 100, "microseconds": float(microseconds)}
    return figures


def measure_gpu(run):
    bench = machine.BIN / "gpu_bench"
    run.figures.update(kernel_figures(run.run("kernels", [machine.BIN / "gpu_kernels", "speed"], 150)))
    for size in (1, 2):
        run.run(f"host time, {size} ranks", [bench, "host_time", size], 130)
    measure_steps(run, "steps")


def measure_steps(run, name, **options):
    """The exchange of a step over the loopback as it is, and over links that are made of it."""
    bench = machine.BIN / "gpu_bench"
    run.run(f"{name}, unshaped loopback", [bench, "steps", "unshaped"], 130, **options)
    for link in LINKS:
        shaped = [sys.executable, machine.BUNDLE / "shaped.py", link]
        status, why = machine.output_of([*shaped, "true"], run.environment)
        if status == 0:
            run.run(f"{name}, {link}", [*shaped, bench, "steps", link], 130, **options)
        else:
            name = f"optional/{name.removeprefix('optional/')}"
            run.note(f"{name}, {link}", legs.SKIP, f"no such link can be made here: {why.strip().splitlines()[-1:]}")


def measure_by_mps(run):
    """Steps again, where kernels of the two ranks run at the same time: nearer to two GPUs than ranks that take turns."""
    with machine.mps(run.environment) as served:
        if served is None:
            run.note("optional/MPS", legs.SKIP, "not on this machine, or it does not start")
            return
        measure_steps(run, "optional/steps by MPS", slow_is_failure=False, environment=served, suffix=" by MPS")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--results", default="results")
    arguments.add_argument("--minutes", type=float, default=10)
    asked = arguments.parse_args()
    environment = machine.environment_of_programs()
    run = legs.Legs("bench", asked.results, 60 * asked.minutes - 10, environment)
    here = machine.describe(environment)
    has_gpu = "gpu" in here
    if has_gpu:
        measure_gpu(run)
        measure_by_mps(run)
    else:
        for what in (["host_time", 2], ["steps", "none"]):
            run.run(f"cpu/{what[0]} on fakes", [machine.BIN / "gpu_bench", "--fake", *what], 60)
        run.figures.clear()  # those of fakes mean nothing
        run.note("gpu", legs.SKIP, here.get("cuda", "no GPU"))
    return run.finish(here, json.loads((machine.BUNDLE / "bundle.json").read_text()), has_gpu)


if __name__ == "__main__":
    sys.exit(main())
