#!/usr/bin/env python3
"""Draws all_reduce.svg beside all_reduce.json: the speed of every library against the size, a panel for each world.

    bench/peers/plot.py [FOLDER]      FOLDER: docs/results by default; compare.py calls this at its end

Speed is bytes of the buffer per second of the median call, the field's "algorithm bandwidth". Needs matplotlib.
"""

import json
import pathlib
import sys

from peers import ROOT

STYLES = {
    "tutti": dict(color="#c1272d", linewidth=2.4),
    "tutti-private": dict(color="#c1272d", linewidth=1.4, linestyle="--"),
    "openmpi-sm": dict(color="#4d648d"),
    "openmpi-ucx": dict(color="#4d648d", linestyle=":"),
    "mpich": dict(color="#7f9c5a"),
    "gloo": dict(color="#8c8c8c"),
}
NAMES = {"tutti": "Tutti, shared arena", "tutti-private": "Tutti, ordinary memory", "openmpi-sm": "Open MPI (sm)",
         "openmpi-ucx": "Open MPI (UCX)", "mpich": "MPICH", "gloo": "gloo (PyTorch)"}
TICKS = {4: "4 B", 1 << 10: "1 KB", 64 << 10: "64 KB", 1 << 20: "1 MB", 64 << 20: "64 MB"}


def draw(folder):
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("this Python has no matplotlib (`.ci/install plots`)")
    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # equal figures give equal files
    result = json.loads((folder / "all_reduce.json").read_text())
    entries = [entry for entry in result["summary"] if not entry["rewrite"]]
    worlds = sorted({entry["ranks"] for entry in entries})
    figure, panels = pyplot.subplots(1, len(worlds), figsize=(3.6 * len(worlds), 3.4), sharey=True, squeeze=False)
    for panel, ranks in zip(panels[0], worlds):
        rows = [entry for entry in entries if entry["ranks"] == ranks]
        for name in rows[0]["p50_us"]:
            points = [(e["bytes"], e["bytes"] / e["p50_us"][name] / 1e3) for e in rows if name in e["p50_us"]]
            panel.loglog(*zip(*points), label=NAMES.get(name, name), **STYLES.get(name, {}))
        ticks = {size: text for size, text in TICKS.items() if rows[0]["bytes"] <= size <= rows[-1]["bytes"]}
        panel.set_xticks(list(ticks), list(ticks.values()), fontsize=8)
        panel.minorticks_off()
        panel.grid(True, color="#e5e5e5")
        panel.set_title(f"{ranks} ranks", fontsize=10)
    panels[0][0].set_ylabel("GB/s of the buffer, all_reduce f32")
    panels[0][0].legend(fontsize=7, frameon=False)
    figure.suptitle(f"all_reduce on {result['machine'].split(',')[0]}, {result['date']}; more is better", fontsize=10)
    figure.tight_layout()
    figure.savefig(folder / "all_reduce.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/results")
