#!/usr/bin/env python3
"""Compares Tutti's bytegrad and qadam with the same in numpy, and draws what 8 bits cost them: docs/replay.md.

    docs/examples/replay.py [--tutti PATH] [--plot FILE]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    # [data]
    import numpy as np

    steps, ranks, n, lr = 100, 4, 1000, 0.1
    rng = np.random.default_rng(1)
    gradients = rng.standard_normal((steps, ranks, n)).astype("<f4")
    w0 = rng.standard_normal(n).astype("<f4")
    # [data]
except ImportError:
    print("replay.py needs numpy: `.ci/install plots` puts it into ~/.cache/tutti/torch-*, use bin/python3 there")
    sys.exit(77)  # skipped, for ctest


# [bytegrad]
def through_8_bits(x):
    """What is left of numbers that were encoded with minmax_uint8 and decoded."""
    scale = np.float32(255 / float(x.max() - x.min() + np.float32(1e-7)))
    highest = np.rint(x.max() * scale)
    code = np.trunc(np.minimum(np.rint(x * scale), highest) - (highest - 255))  # 0 … 255
    return (code + (highest - 255)) / scale


def in_8_bits(gradients):
    """What every rank gets in place of its gradient, given those of all ranks [ranks, n]."""
    averages = [sum(through_8_bits(one_rank) for one_rank in chunk) / ranks
                for chunk in np.array_split(gradients, ranks, axis=1)]
    return np.concatenate([through_8_bits(average) for average in averages])


def exactly(gradients):
    """What every rank gets without a loss: the exact average."""
    return sum(gradients) / ranks
# [bytegrad]


# [descend]
def descend(exchange):
    """The weights after each step [steps, n]."""
    weights = [w0]
    for gradient in gradients:
        weights.append(weights[-1] - lr * exchange(gradient))
    return np.array(weights[1:])
# [descend]


# [qadam]
def qadam(exchange, warmup_steps=20, beta1=0.9, beta2=0.999, eps=1e-8):
    """The weights after each step [steps, n]."""
    weights, m, v = [w0], np.zeros_like(w0), np.zeros_like(w0)
    for t, gradient in enumerate(gradients, start=1):
        if t <= warmup_steps:  # Adam, of the exact average
            g = exactly(gradient)
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * (g * g)
            deviation = np.sqrt(v) / (1 - beta2**t) ** 0.5
        else:  # every rank puts its gradient into the momentum, and that is exchanged
            m = exchange(beta1 * m + (1 - beta1) * gradient)
            deviation = np.sqrt(v)
        weights.append(weights[-1] - lr / (1 - beta1**t) * m / (deviation + eps))
        if t == warmup_steps:  # v is frozen, with its bias correction, and no element far below the others
            v = v / (1 - beta2**t)
            v = np.maximum(v, 1e-4 * float(v.mean(dtype=np.float64)))
    return np.array(weights[1:])
# [qadam]


def draw(trained, path):
    """What 8 bits have cost after each step: the distance to the same training with exact averages."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # the same file every time
    # [draw]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for axis, name, train in [(axes[0], "bytegrad", descend), (axes[1], "qadam", qadam)]:
        lost = np.abs(trained[name][:, 0] - train(exactly))
        differs = np.abs(trained[name] - train(in_8_bits)[:, None])
        step = np.arange(1, steps + 1)
        axis.plot(step, lost.max(axis=1), label="lost in 8 bits: largest")
        axis.plot(step, lost.mean(axis=1), label="lost in 8 bits: mean")
        axis.plot(step, differs.max(axis=(1, 2)), "k:", label="numpy − Tutti: largest of all ranks")
        axis.set(title=name, xlabel="step", ylabel="distance of a weight")
    # [draw]
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    axes[1].axvline(20, color="gray", linewidth=0.8)
    axes[1].annotate("warm-up ", (20, 0.95), xycoords=("data", "axes fraction"), ha="right", color="gray")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tutti", type=pathlib.Path, default=pathlib.Path("build/release/bin/tutti"))
    parser.add_argument("--plot", type=pathlib.Path, help="also draw the difference into this file (needs matplotlib)")
    args = parser.parse_args()
    tutti = args.tutti.resolve()
    plot = args.plot.resolve() if args.plot else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        trained = {}
        # [replay]
        np.save("g.npy", gradients)
        np.save("w0.npy", w0)
        for name, strategy, optimizer in [
                ("exact", "gradient_allreduce", "sgd"),
                ("bytegrad", "bytegrad:codec=minmax_uint8,block=0", "sgd"),
                ("qadam", "qadam:codec=minmax_uint8,block=0,warmup_steps=20", "qadam")]:
            subprocess.run([tutti, "replay", strategy, "--optimizer", optimizer, "--lr", str(lr),
                            "--gradients", "g.npy", "--weights", "w0.npy", "--out", "w.npy"], check=True)
            trained[name] = np.load("w.npy")  # [steps, ranks, n]
        # [replay]
        # [compare]
        for rank in range(ranks):
            np.testing.assert_array_equal(trained["exact"][:, rank], descend(exactly))
            np.testing.assert_array_equal(trained["bytegrad"][:, rank], descend(in_8_bits))
            np.testing.assert_array_equal(trained["qadam"][:, rank], qadam(in_8_bits))
        # [compare]
    if plot:
        draw(trained, plot)


if __name__ == "__main__":
    main()
