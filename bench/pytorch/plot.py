#!/usr/bin/env python3
"""Draws pytorch.svg beside pytorch.json: the time of a training step on gloo and on tutti, a panel for each link and world.

    bench/pytorch/plot.py [FOLDER]      FOLDER: docs/results by default

Needs matplotlib (`.ci/install plots`).
"""

import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP = "step of an MLP of 20 M parameters, batch 2"
COMPUTE, GLOO, TUTTI = "#c9c9c9", "#4d648d", "#c1272d"
NAMES = {"gloo": "gloo", "tutti": "tutti, unchanged", "tutti, gradient_allreduce": "tutti, registered",
         "tutti, bytegrad": "tutti, bytegrad"}
LINKS = {"memory": "one host", "1gbit": "hosts on 1 Gb/s", "100mbit": "hosts on 100 Mb/s"}


def draw(folder):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # equal figures give equal files
    result = json.loads((folder / "pytorch.json").read_text())
    runs = [run for run in result["results"] if STEP in run["seconds"]]
    figure, panels = pyplot.subplots(1, len(runs), figsize=(3.2 * len(runs), 2.8), squeeze=False, sharey=True)
    for panel, run in zip(panels[0], runs):
        medians = {name: statistics.median(times) * 1e3 for name, times in run["seconds"][STEP].items()}
        names = [name for name in NAMES if name in medians][::-1]
        alone = medians["no exchange"]
        for row, name in enumerate(names):
            panel.barh(row, min(alone, medians[name]), color=COMPUTE)
            panel.barh(row, max(0, medians[name] - alone), left=alone, color=GLOO if name == "gloo" else TUTTI)
            panel.text(medians[name], row, f" {medians[name]:.0f} ms", va="center", fontsize=8)
        panel.set_yticks(range(len(names)), [NAMES[name] for name in names], fontsize=8)
        panel.set_xlim(0, max(medians.values()) * 1.25)
        panel.tick_params(axis="x", labelsize=7)
        panel.set_title(f"{run['ranks']} ranks, {LINKS.get(run['link'], run['link'])}", fontsize=9)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    figure.suptitle("A training step of DistributedDataParallel, MLP of 20 M parameters: computation (grey) and what the "
                    "exchange adds", fontsize=9)
    figure.tight_layout()
    figure.savefig(folder / "pytorch.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/results")
