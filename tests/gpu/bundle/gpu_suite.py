#!/usr/bin/env python3
"""Checks Tutti on the GPU of this machine, within ten minutes: gpu_suite [--results FOLDER] [--minutes N] [--only WORD]...

Writes suite.json, suite.txt and the output of every leg to the folder (./results). Exits with 0 when all has passed,
with 1 when something has not, and with 77 where there is no GPU and what needs none has passed.
"""

import argparse
import json
import sys

import legs
import machine

ON_HOST = "host_test.py"  # the one test of the Python package that needs no GPU


def rank_checks(environment):
    """(name, number of ranks, timeout) of each check; those of few ranks first, because time may run out."""
    _, text = machine.output_of([machine.BIN / "gpu_ranks", "list"], environment)
    found = []
    for line in text.splitlines():
        name, sizes, timeout_s = line.split()[:3]
        found += [(name, int(size), float(timeout_s)) for size in sizes.split(",")]
    return sorted(found, key=lambda check: check[1])


def check_gpu(run, environment):
    run.run("kernels", [machine.BIN / "gpu_kernels", "check"], 150)
    for name, size, timeout_s in rank_checks(environment):
        # The program ends its ranks after the timeout, and says which of them has not reported.
        run.run(f"ranks/{name}, {size}", [machine.BIN / "gpu_ranks", name, size], timeout_s + 20)


def check_by_mps(run, environment):
    """Some checks again, where kernels of several ranks run at the same time."""
    with machine.mps(environment) as served:
        if served is None:
            run.note("optional/MPS", legs.SKIP, "not on this machine, or it does not start")
            return
        for name in ("collectives", "stream_order"):
            run.run(f"optional/{name} by MPS, 2", [machine.BIN / "gpu_ranks", name, 2], 110, slow_is_failure=False,
                    environment=served)


def check_torch(run, environment, here, has_gpu):
    """The tests of the Python package: those on the GPU, where there is one, and one on the host."""
    tests = machine.BUNDLE / "torch"
    if not tests.exists():
        return
    # The extension module finds the bundle's libucp by its RPATH, which does not lead to the libraries that libucp needs.
    environment = {**environment, "PYTHONDONTWRITEBYTECODE": "1"}
    for name, folder in (("PYTHONPATH", machine.BUNDLE / "python"), ("LD_LIBRARY_PATH", machine.BIN / "libraries")):
        environment[name] = ":".join(filter(None, [str(folder), environment.get(name)]))
    python, here["torch"] = machine.find_torch(environment, has_gpu)
    if python is None:
        run.note("cpu/torch", legs.SKIP, here["torch"])
        return
    pytest = [python, "-m", "pytest", "-v", "--tb=short", "--disable-warnings", "-p", "no:cacheprovider", "-o",
              "faulthandler_timeout=100"]
    run.run("cpu/torch", [*pytest, tests / ON_HOST], 120, environment=environment)
    for test in sorted(tests.glob("*_test.py")) if has_gpu else []:
        if test.name != ON_HOST:
            run.run(f"torch/{test.stem.removesuffix('_test')}", [*pytest, test], 150, environment=environment)


def check_by_sanitizer(run):
    tool = machine.find_tool("compute-sanitizer")
    if tool is None:
        run.note("optional/compute-sanitizer", legs.SKIP, "not on this machine")
        return
    for what in ("memcheck", "racecheck"):
        run.run(f"optional/{what}", [tool, "--tool", what, "--error-exitcode", "9", machine.BIN / "gpu_kernels", "check",
                                     "small"], 120, slow_is_failure=False)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--results", default="results")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--only", default=[], action="append", metavar="WORD",
                           help="run the legs whose names have this, or another such word, in them")
    asked = arguments.parse_args()
    environment = machine.environment_of_programs()
    run = legs.Legs("suite", asked.results, 60 * asked.minutes - 10, environment, asked.only)
    here = machine.describe(environment)
    has_gpu = "gpu" in here
    run.run("cpu/ranks on fakes", [machine.BIN / "gpu_ranks", "--fake"], 200)
    run.run("cpu/a process over UCX", [machine.BIN / "gpu_ranks", "--fake-process", "collectives"], 60)
    if has_gpu:
        check_gpu(run, environment)
    check_torch(run, environment, here, has_gpu)
    if has_gpu:
        check_by_mps(run, environment)
        check_by_sanitizer(run)
    else:
        run.note("gpu", legs.SKIP, here.get("cuda", "no GPU"))
    return run.finish(here, json.loads((machine.BUNDLE / "bundle.json").read_text()), has_gpu)


if __name__ == "__main__":
    sys.exit(main())
