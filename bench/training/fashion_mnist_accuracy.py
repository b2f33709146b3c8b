#!/usr/bin/env python3
"""Trains the CNN of docs/examples on Fashion-MNIST with each strategy and seed; writes docs/results/fashion_mnist.{json,md}.

About 20 minutes on 2 cores. Needs build/release (`make build`).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATEGIES = ["gradient_allreduce", "bytegrad"]
ALLOWED_LOSS = 0.5  # percentage points between the mean accuracies of the two strategies
ALLOWED_WIRE = 0.27  # wire bytes of bytegrad, as a share of an f32 all_reduce's


def train(args, strategy, seed):
    with tempfile.TemporaryDirectory() as directory:
        result = pathlib.Path(directory) / "row.json"
        subprocess.run([args.bin / "tutti", "launch", "-n", str(args.ranks), "--", args.bin / "train_fashion_mnist",
                        "--strategy", strategy, "--epochs", str(args.epochs), "--seed", str(seed), "--json", result],
                       check=True)
        return json.loads(result.read_text())


def page(rows, args):
    """The results as a page of Markdown, and whether they are good enough."""
    of = {strategy: [row for row in rows if row["strategy"] == strategy] for strategy in STRATEGIES}
    accuracy = {strategy: 100 * statistics.mean(row["accuracy"] for row in of[strategy]) for strategy in STRATEGIES}
    loss = accuracy["gradient_allreduce"] - accuracy["bytegrad"]
    wire = max(row["wire_ratio"] for row in of["bytegrad"])
    lines = [
        "# Fashion-MNIST: what 8 bits cost",
        "",
        f"Test accuracy after {args.epochs} epochs on {args.ranks} local ranks (batch 64 each), by"
        " `bench/training/fashion_mnist_accuracy.py`.",
        f"Machine: {os.cpu_count()} cores, load average {args.load:.1f} before the first run.",
        "",
        "| strategy | seed | accuracy | seconds | MB on the wire | ratio to f32 | equal weights |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        lines.append(f"| `{row['strategy']}` | {row['seed']} | {100 * row['accuracy']:.2f} % | {row['seconds']:.1f} | "
                     f"{row['wire_bytes'] / 1e6:,.0f} | {row['wire_ratio']:.3f} | "
                     f"{'yes' if row['weights_identical'] else 'no'} |")
    lines += [
        "",
        f"Mean accuracy: `gradient_allreduce` {accuracy['gradient_allreduce']:.2f} %, `bytegrad`"
        f" {accuracy['bytegrad']:.2f} %: {abs(loss):.2f} percentage points {'less' if loss > 0 else 'more'}"
        f" (at most {ALLOWED_LOSS} less is asked for). `bytegrad` moves {wire:.3f} of the bytes (at most {ALLOWED_WIRE}).",
    ]
    good = loss <= ALLOWED_LOSS and wire <= ALLOWED_WIRE and all(row["weights_identical"] for row in rows)
    return "\n".join(lines) + "\n", good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results", help="where results go")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=4)
    args = parser.parse_args()
    args.load = os.getloadavg()[0]
    rows = [train(args, strategy, seed) for seed in args.seeds for strategy in STRATEGIES]
    text, good = page(rows, args)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "fashion_mnist.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    (args.out / "fashion_mnist.md").write_text(text)
    print(text)
    if not good:
        sys.exit("fashion_mnist_accuracy: outside what is asked for, see above")


if __name__ == "__main__":
    main()
