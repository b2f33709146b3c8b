#!/usr/bin/env python3
"""Draws PAGE.svg beside PAGE.json: the speed of every library's all_reduce against the size, a panel for each world.

    bench/peers/plot.py all_reduce|hosts [FOLDER]      FOLDER: docs/results by default; the comparisons call this

Speed is bytes of the buffer per second of the mean call, the field's "algorithm bandwidth"; a thin line is what the
wire allows. Needs matplotlib.
"""

import json
import pathlib
import sys

from pages import short
from peers import ROOT

STYLES = {
    "tutti": dict(color="#c1272d", linewidth=2.4),
    "tutti-private": dict(color="#c1272d", linewidth=1.4, linestyle="--"),
    "tutti-uint8_block": dict(color="#e0a030", linewidth=1.4, linestyle="--"),
    "before": dict(color="#c1272d", linewidth=1, linestyle=":"),
    "openmpi-sm": dict(color="#4d648d"),
    "openmpi-tcp": dict(color="#4d648d"),
    "openmpi-ucx": dict(color="#4d648d", linestyle=":"),
    "mpich": dict(color="#7f9c5a"),
    "mpich-ofi": dict(color="#7f9c5a"),
    "mpich-ucx": dict(color="#7f9c5a", linestyle=":"),
    "gloo": dict(color="#8c8c8c"),
    "wire": dict(color="#000000", linewidth=0.6),
}
NAMES = {"tutti": "Tutti", "tutti-private": "Tutti, ordinary memory", "before": "Tutti, before",
         "tutti-uint8_block": "Tutti, 8 bits (lossy)",
         "openmpi-sm": "Open MPI (sm)", "openmpi-tcp": "Open MPI (TCP)", "openmpi-ucx": "Open MPI (UCX)",
         "mpich": "MPICH", "mpich-ofi": "MPICH (OFI)", "mpich-ucx": "MPICH (UCX)", "gloo": "gloo (PyTorch)"}
TICKS = {4: "4 B", 1 << 10: "1 KB", 64 << 10: "64 KB", 1 << 20: "1 MB", 64 << 20: "64 MB"}
SPEEDS = {1e-6: "1 KB/s", 1e-5: "10 KB/s", 1e-4: "100 KB/s", 1e-3: "1 MB/s", 1e-2: "10 MB/s", 1e-1: "100 MB/s", 1: "1 GB/s",
          10: "10 GB/s", 100: "100 GB/s"}  # by GB/s


def panels_of(entries):
    """Rows of panels: (title, entries of one line of sizes)."""
    worlds = sorted({entry["ranks"] for entry in entries})
    if "rate" not in entries[0]:
        return [[(f"{ranks} ranks", [e for e in entries if e["ranks"] == ranks]) for ranks in worlds]]
    links = list(dict.fromkeys((entry["rate"], entry["delay_ms"]) for entry in entries))
    return [[(f"{ranks} hosts, {rate}" + f", {delay_ms:g} ms" * (delay_ms > 0),
              [e for e in entries if (e["ranks"], e["rate"], e["delay_ms"]) == (ranks, rate, delay_ms)])
             for rate, delay_ms in links] for ranks in worlds]


def draw_panel(panel, title, entries):
    panel.set_title(title, fontsize=10)
    names = dict.fromkeys(name for entry in entries for name in entry["time_us"])
    times = {name: [(e["bytes"], e["time_us"][name]) for e in entries if name in e["time_us"]] for name in names}
    times["wire"] = [(e["bytes"], e["wire_us"]) for e in entries if e.get("wire_us")]
    for name, points in times.items():
        if points:
            panel.loglog(*zip(*[(size, size / time / 1e3) for size, time in points]), label=NAMES.get(name, name),
                         **STYLES.get(name, {}))
    sizes = [entry["bytes"] for entry in entries] or [1]
    ticks = {size: text for size, text in TICKS.items() if min(sizes) <= size <= max(sizes)}
    panel.set_xticks(list(ticks), list(ticks.values()), fontsize=8)
    low, high = panel.get_ylim()
    speeds = {speed: text for speed, text in SPEEDS.items() if low <= speed <= high}
    panel.set_yticks(list(speeds), list(speeds.values()), fontsize=8)
    panel.minorticks_off()
    panel.grid(True, color="#e5e5e5")


def title_of(result):
    same = ", the same buffer again and again" * any(entry.get("rewrite") is False for entry in result["summary"])
    return (f"How fast all_reduce is (f32){same}: higher is better.\n{short(result['machine'])}, {result['date']}"
            + "; ranks above the number of cores share them" * bool(same))


def draw(page, folder):
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("this Python has no matplotlib (`.ci/install plots`)")
    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # equal figures give equal files
    result = json.loads((folder / f"{page}.json").read_text())
    grid = panels_of([e for e in result["summary"] if e["collective"] == "all_reduce" and not e.get("rewrite")])
    figure, panels = pyplot.subplots(len(grid), len(grid[0]), figsize=(3.6 * len(grid[0]), 0.4 + 3 * len(grid)),
                                     sharey="row", squeeze=False)
    for row, line in zip(panels, grid):
        for panel, (title, entries) in zip(row, line):
            draw_panel(panel, title, entries)
        row[0].set_ylabel("bytes of the buffer per second", fontsize=9)
        row[len(row) // 2].set_xlabel("size of the buffer", fontsize=9)
    panels[0][0].legend(fontsize=7, frameon=False)
    figure.suptitle(title_of(result), fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / f"{page}.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(sys.argv[1], pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/results")
