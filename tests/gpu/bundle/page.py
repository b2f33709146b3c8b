#!/usr/bin/env python3
"""Writes docs/results/gpu.md from what gpu_suite and gpu_bench have measured:

    tests/gpu/bundle/page.py suite.json... bench.json [PAGE]

The legs of several suites, which ran a part each, are put together.

Results of a machine without a GPU are refused, and the page stays as it is.
"""

import json
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "results" / "gpu.md"
KERNEL = re.compile(r"kernel (.*), (\d+) MB")
UNSHAPED = "unshaped"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def text_of(figures, name):
    figure = figures.get(name)
    return "not measured" if figure is None else f"{figure['value']:g} {figure['unit']}"


def kernels(figures):
    """A row for each kernel, a column for each size."""
    found = {}
    for name, figure in figures.items():
        if match := KERNEL.fullmatch(name):
            found.setdefault(match.group(1), {})[int(match.group(2))] = figure
    sizes = sorted({size for of_kernel in found.values() for size in of_kernel})
    if not found:
        return ["Not measured.", ""]
    cell = "{0[value]:.0f} GB/s, {1:.0f} %"
    rows = [[name] + [cell.format(of_kernel[size], 100 * of_kernel[size]["share_of_copy"]) if size in of_kernel else "–"
                      for size in sizes] for name, of_kernel in found.items()]
    return table(["kernel"] + [f"{size} MB" for size in sizes], rows)


def host_time(figures):
    ways = (("Tutti's `AllReduce`", "tutti"), ("with `WaitOnStream`", "tutti_and_wait_on_stream"),
            ("`ncclAllReduce`", "nccl"), ("`ncclAllReduce` between two events", "nccl_and_two_events"),
            ("`BoundPlan::Start`, once the call before has ended", "tutti_bound"),
            ("`ncclAllReduce`, once the call before has ended", "nccl_alone"))
    return table(["call", "1 rank", "2 ranks"],
                 [[way] + [text_of(figures, f"host_time_{name}_{size}") for size in (1, 2)] for way, name in ways]) + \
        what_tutti_adds(figures)


def what_tutti_adds(figures):
    """What a call of two ranks takes longer with Tutti than with NCCL, each in the same circumstances."""
    pairs = (("a bare call", "tutti", "nccl"),
             ("a call for which other streams wait, on either side", "tutti_and_wait_on_stream", "nccl_and_two_events"),
             ("a call after a pause, for which the sleeping thread of the engine has to be woken", "tutti_bound", "nccl_alone"))
    added = []
    for what, *names in pairs:
        tutti, nccl = (figures.get(f"host_time_{name}_2", {}).get("value") for name in names)
        if tutti and nccl:
            added.append(f"{tutti - nccl:.1f} us: {what}")
    return ["Calls of two ranks take longer with Tutti than with NCCL by", "", *(f"- {line}" for line in added), ""] * bool(added)


def steps(figures):
    links = list(dict.fromkeys(name.split("_", 2)[2] for name in figures if name.startswith("step_")))
    rows = []
    for link in links:
        values = [figures.get(f"step_{name}_{link}", {}).get("value") for name in ("fp32", "bf16", "bytegrad")]
        rows.append([link] + [f"{value:g} ms" if value else "not measured" for value in values] +
                    [f"{values[0] / values[2]:.2f}" if values[0] and values[2] else "–"])
    return table(["link", "f32", "bf16", "bytegrad", "f32 / bytegrad"], rows)


def page_of(suite, bench):
    for results in (suite, bench):
        if not results["has_gpu"]:
            sys.exit(f"page.py: the {results['kind']} of {results['date']} ran without a GPU: it has measured nothing")
        if results["machine"].get("gpu") != suite["machine"]["gpu"]:
            sys.exit("page.py: suite and bench ran on different GPUs")
    has = suite["machine"].get
    lines = ["# GPUs", "", f"Checked {suite['date']}, measured {bench['date']}, by the programs of `tests/gpu/bundle` on one "
             f"{has('gpu')}: driver {has('driver', 'unknown')}, which serves CUDA {has('cuda_driver')}; Tutti built with CUDA "
             f"{has('cuda_runtime')}; NCCL {has('nccl')}; commit {bench['bundle']['commit']}.", ""]
    lines += ["## Checks", "", "Ranks are processes that share the GPU; NCCL joins them by sockets of the loopback interface.", ""]
    lines += table(["check", "result", "seconds"],
                   [[leg["name"], " ".join([leg["status"], leg.get("why", "")]).strip(), f"{leg['seconds']:g}"]
                    for leg in suite["legs"]])
    lines += ["## Kernels", "", "The bytes that a kernel must read and write at least, by its time, and that rate as a share of "
              "what a copy in the memory of the GPU reaches in the same run.", ""] + kernels(bench["figures"])
    lines += ["## Time of the host for a call", "",
              "Medians, of an all_reduce of 1 KB. The ranks share the GPU; a world of one rank uses no NCCL.", ""]
    lines += host_time(bench["figures"])
    lines += ["## Exchange of a step", "", "Medians, of 64 MB of f32 between two processes over NCCL's sockets. "
              f"`{UNSHAPED}`: the loopback interface as it is; other links are that interface at twice the speed of the link, "
              "because the bytes of both directions pass it.", ""] + steps(bench["figures"])
    missing = [leg for leg in bench["legs"] if leg["status"] != "passed"]
    lines += [f"Not measured: {leg['name']} ({leg['status']}: {leg.get('why', '')})." for leg in missing]
    return "\n".join(lines).rstrip() + "\n"


def main():
    pages = [path for path in sys.argv[1:] if not path.endswith(".json")] or [PAGE]
    *suites, bench = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:] if path.endswith(".json"))
    for more in suites[1:]:
        if more["bundle"] != suites[0]["bundle"] or more["machine"].get("gpu") != suites[0]["machine"].get("gpu"):
            sys.exit("page.py: the suites are of different bundles, or ran on different GPUs")
        suites[0]["legs"] += more["legs"]
    pathlib.Path(pages[0]).write_text(page_of(suites[0], bench), encoding="utf-8")


if __name__ == "__main__":
    main()
