#!/usr/bin/env python3
"""Trains on Fashion-MNIST once per strategy, on local ranks; prints one table; writes table.json and a plot of it."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATEGIES = ["gradient_allreduce", "bytegrad"]
COLUMNS = ["strategy", "ranks", "epochs", "seed", "accuracy", "seconds", "wire_bytes", "wire_ratio", "weights_identical"]


def train(args, strategy):
    """One row of the table, made by one run of train_fashion_mnist on all ranks."""
    result = args.out / "row.json"
    command = [args.bin / "tutti", "launch", "-n", str(args.ranks), "--", args.bin / "train_fashion_mnist",
               "--strategy", strategy, "--epochs", str(args.epochs), "--seed", str(args.seed), "--device", args.device,
               "--json", result]
    if args.max_steps:
        command += ["--max-steps", str(args.max_steps)]
    print(f"\n$ {' '.join(map(str, command))}", flush=True)
    result.unlink(missing_ok=True)
    ended = subprocess.run(command)
    if ended.returncode != 0 or not result.exists():
        sys.exit(f"quickstart: training with {strategy} failed (exit code {ended.returncode}), see above")
    row = json.loads(result.read_text())
    result.unlink()
    return {name: row[name] for name in COLUMNS}


def table(rows):
    """The rows as lines of text."""
    header = ["strategy", "accuracy", "time", "sent by all ranks", "ratio to f32", "equal weights"]
    lines = [[row["strategy"], f"{100 * row['accuracy']:.2f} %", f"{row['seconds']:.1f} s",
              f"{row['wire_bytes'] / 1e6:,.1f} MB", f"{row['wire_ratio']:.3f}",
              "yes" if row["weights_identical"] else "NO"] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *lines)]
    lines = [header, ["-" * width for width in widths], *lines]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def plot(rows, path):
    """Three small bar charts beside each other; False where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    columns = [("test accuracy in %", [100 * row["accuracy"] for row in rows], "%.2f"),
               ("seconds", [row["seconds"] for row in rows], "%.1f"),
               ("MB on the wire", [row["wire_bytes"] / 1e6 for row in rows], "%.0f")]
    for axis, (title, values, text) in zip(axes, columns):
        bars = axis.bar([row["strategy"] for row in rows], values, color=["#4878a8", "#e08030"], width=0.6)
        axis.bar_label(bars, fmt=text)
        axis.set_title(title)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(y=0.15)
    figure.suptitle(f"Fashion-MNIST, {rows[0]['ranks']} ranks, {rows[0]['epochs']} epochs")
    figure.savefig(path, dpi=120)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/quickstart", help="where results go")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: one GPU for each rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-steps", type=int, default=0, help="steps per epoch at most; 0: all images")
    args = parser.parse_args()
    for program in ["tutti", "train_fashion_mnist"]:
        if not (args.bin / program).exists():
            sys.exit(f"quickstart: {args.bin / program} is missing: run `make build`, or pass --bin")
    args.out.mkdir(parents=True, exist_ok=True)

    rows = [train(args, strategy) for strategy in STRATEGIES]
    (args.out / "table.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    print("", *table(rows), "", sep="\n")
    print(f"Written to {args.out / 'table.json'}", end="")
    print(f", plot in {args.out / 'table.png'}" if plot(rows, args.out / "table.png") else
          "; no plot: this Python has no matplotlib (`.ci/install plots`)")


if __name__ == "__main__":
    main()
