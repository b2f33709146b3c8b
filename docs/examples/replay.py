#!/usr/bin/env python3
"""Holds bytegrad against a dozen lines of numpy, and draws what it loses: docs/replay.md.

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

    steps, ranks, n = 100, 4, 1000
    lr = np.float32(0.1)
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


def bytegrad(gradients):
    """What every rank gets in place of its gradient, given those of all ranks [ranks, n]."""
    averages = [sum(through_8_bits(one_rank) for one_rank in chunk) / np.float32(ranks)
                for chunk in np.array_split(gradients, ranks, axis=1)]
    return np.concatenate([through_8_bits(average) for average in averages])
# [bytegrad]


# [descend]
def descend(exchange):
    """The weights after each step [steps, n]."""
    weights = [w0]
    for gradient in gradients:
        weights.append(weights[-1] - lr * exchange(gradient))
    return np.array(weights[1:])
# [descend]


def draw(trained, exact, path):
    """What 8 bits have cost after each step, and one weight on its way."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # the same file every time
    figure, (lost, path_of_one) = pyplot.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    # [draw]
    difference = np.abs(trained["bytegrad"][:, 0] - exact)
    lost.plot(difference.max(axis=1), label="largest")
    lost.plot(difference.mean(axis=1), label="mean")
    lost.plot(np.abs(trained["bytegrad"] - descend(bytegrad)[:, None]).max(axis=(1, 2)), "k:", label="numpy − Tutti")
    # [draw]
    lost.set(title="bytegrad − exact average, per weight", xlabel="step")
    lost.legend()
    path_of_one.plot(exact[:, 0], label="exact average")
    path_of_one.plot(trained["bytegrad"][:, 0, 0], "--", label="bytegrad")
    path_of_one.set(title="weight 0", xlabel="step")
    path_of_one.legend()
    for axis in (lost, path_of_one):
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
        for name, strategy in {"exact": "gradient_allreduce", "bytegrad": "bytegrad:codec=minmax_uint8,block=0"}.items():
            subprocess.run([tutti, "replay", strategy, "--gradients", "g.npy", "--weights", "w0.npy",
                            "--lr", "0.1", "--out", "w.npy"], check=True)
            trained[name] = np.load("w.npy")  # [steps, ranks, n]
        # [replay]
        # [compare]
        for rank in range(ranks):
            np.testing.assert_array_equal(trained["bytegrad"][:, rank], descend(bytegrad))
        exact = descend(lambda gradient: sum(gradient) / np.float32(ranks))
        np.testing.assert_array_equal(trained["exact"][:, 0], exact)
        print("largest difference to the exact average:", np.abs(trained["bytegrad"][:, 0] - exact).max())
        # [compare]
    if plot:
        draw(trained, exact, plot)


if __name__ == "__main__":
    main()
