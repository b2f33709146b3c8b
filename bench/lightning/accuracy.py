#!/usr/bin/env python3
"""Accuracy against time of the strategies in Lightning's Trainer, beside Lightning's own ddp on gloo.

    make install-python install-plots && cmake --workflow --preset dev
    PYTHONPATH=build/dev/python ~/.cache/tutti/torch-2.11/bin/python3 bench/lightning/accuracy.py [--links memory 100mbit]
        [--ranks 4] [--epochs 4] [--seeds 1]

The net, the data (Fashion-MNIST), the batches of 64 images per rank and the rates are those of the cnn in
docs/results/training.md, which C++ has trained. On a link such as `100mbit` each rank is a host of its own, a network
namespace on a link of that speed (needs root). Times are those of training, validations not included. Nothing else may
run on the machine. Written are docs/results/lightning.md, its picture lightning.svg and, with every run, lightning.json.
"""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "hosts"))
import idle
from links import Hosts, run_ranks

RESULTS = ROOT / "docs" / "results"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
MEMORY = "memory"
LIMIT_S = 900
BATCH = 64
# The lines of the strategies: grey is gloo, red what a reader should compare with gloo first.
STRATEGIES = {
    "ddp on gloo": dict(color="#606060", linewidth=2.4, linestyle="--"),
    "ddp on tutti": dict(color="#c1272d", linewidth=1, linestyle="--"),
    "tutti:bytegrad": dict(color="#c1272d", linewidth=2.4),
    "tutti:decentralized": dict(color="#4d648d", linewidth=1),
    "tutti:low_precision_decentralized": dict(color="#7f9c5a", linewidth=1),
    "tutti:async": dict(color="#8c564b", linewidth=1),
    "tutti:qadam,warmup_steps=100": dict(color="#e0a030", linewidth=1),
}


def images(part):
    """Pixels, normalized as docs/examples/fashion_mnist.cc does, and labels."""
    import torch

    def read(name, header):
        raw = bytearray(gzip.decompress((DATA / f"{part}-{name}-ubyte.gz").read_bytes())[header:])
        return torch.frombuffer(raw, dtype=torch.uint8)

    pixels = read("images-idx3", 16).view(-1, 1, 28, 28).float().div_(255).sub_(0.2860).div_(0.3530)
    return torch.utils.data.TensorDataset(pixels, read("labels-idx1", 8).long())


class TrainingClock:
    """The seconds of training of the slowest rank, with all exchanges, and without validations."""

    def __init__(self):
        self.seconds = 0.0

    def start(self, strategy):
        strategy.barrier()
        self.begin = time.perf_counter()

    def stop(self, strategy):
        # Tutti's strategies average weights that differ from rank to rank when a validation starts, but only after the
        # hook of the module in which the clock is stopped.
        if agree_on_weights := getattr(strategy, "agree_on_weights", None):
            agree_on_weights()
        strategy.barrier()
        self.seconds += time.perf_counter() - self.begin


def train(strategy, options):
    """Trains as one rank, which Lightning knows from the environment; rank 0 writes what came out."""
    import torch
    from torch import nn

    import tutti.lightning
    import lightning.pytorch as pl

    torch.set_num_threads(1)
    pl.seed_everything(options.seed)

    class Net(pl.LightningModule):

        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
            self.clock, self.points = TrainingClock(), []

        def training_step(self, batch, batch_idx):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, batch_idx):
            self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean(), sync_dist=True)

        def configure_optimizers(self):
            if "qadam" in strategy:
                optimizer = tutti.lightning.QAdamOptimizer(self.parameters(), lr=0.001)
            else:
                optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
            steps = self.trainer.estimated_stepping_batches
            falls = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, 1 - step / steps))
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": falls, "interval": "step"}}

        def on_train_epoch_start(self):
            self.clock.start(self.trainer.strategy)

        def on_validation_start(self):
            if not self.trainer.sanity_checking:
                self.clock.stop(self.trainer.strategy)

        def on_validation_end(self):
            if not self.trainer.sanity_checking:
                self.points.append((self.clock.seconds, float(self.trainer.callback_metrics["accuracy"])))

    backend = {"ddp on gloo": "gloo", "ddp on tutti": "tutti"}.get(strategy)
    chosen = strategy if backend is None else pl.strategies.DDPStrategy(process_group_backend=backend)
    nodes = 1 if options.link == MEMORY else options.ranks
    trainer = pl.Trainer(strategy=chosen, accelerator="cpu", devices=options.ranks // nodes, num_nodes=nodes,
                         max_epochs=options.epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False, num_sanity_val_steps=0)
    model = Net()
    loader = torch.utils.data.DataLoader
    trainer.fit(model, loader(images("train"), BATCH, shuffle=True), loader(images("t10k"), 500))
    if trainer.is_global_zero:
        pathlib.Path(options.rank_file).write_text(json.dumps(
            {"points": model.points, "steps": trainer.global_step, "torch": torch.__version__}))
    torch.distributed.destroy_process_group()


def measure(strategy, link, seed, options):
    """Starts the ranks, and returns what rank 0 has written."""
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "result.json")
        command = [sys.executable, __file__, "--rank-file", file, "--strategy", strategy, "--link", link, "--seed",
                   str(seed), "--ranks", str(options.ranks), "--epochs", str(options.epochs)]

        def start(commands, extra):
            environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": "29518"}
            run_ranks(commands, [environment | extra(rank) for rank in range(options.ranks)], LIMIT_S,
                      stdout=subprocess.DEVNULL)

        if link == MEMORY:
            start([command] * options.ranks, lambda rank: {"MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": str(rank)})
        else:
            with Hosts(options.ranks, link) as hosts:
                start([hosts.command(rank, command) for rank in range(options.ranks)],
                      lambda rank: {"MASTER_ADDR": hosts.address(0), "NODE_RANK": str(rank), "LOCAL_RANK": "0",
                                    "GLOO_SOCKET_IFNAME": hosts.DEVICE, "TUTTI_NODE": f"host{rank}"})
        return json.loads(pathlib.Path(file).read_text())


def page_of(document):
    first = document["runs"][0]
    lines = [f"""# Lightning's Trainer: accuracy against time

{document['date']}, {document['cores']} cores, {document['system']}, torch {document['torch']}, lightning {document['lightning']}.
Written by `bench/lightning/accuracy.py`, whose first lines describe the method: the cnn of
[training.md](training.md) on {document['ranks']} ranks, {first['steps']} steps, through Lightning's Trainer. Rates are those of that page (qadam: Adam's).
`seconds` are those of training, {document['seconds_of']}. Seeds: {', '.join(map(str, document['seeds']))}.

{idle.line([document.get('in_use')])}

| link | strategy | accuracy | seconds | of ddp on gloo |
| --- | --- | ---: | ---: | ---: |"""]
    for link in document["links"]:
        gloo = None
        for strategy in STRATEGIES:
            runs = [run for run in document["runs"] if (run["link"], run["strategy"]) == (link, strategy)]
            seconds = statistics.median(run["points"][-1][0] for run in runs)
            gloo = gloo or seconds
            accuracy = statistics.mean(run["points"][-1][1] for run in runs)
            lines.append(f"| {link} | `{strategy}` | {100 * accuracy:.2f} % | {seconds:.1f} | {seconds / gloo:.2f} |")
    lines.append("\n![accuracy against time](lightning.svg)")
    return "\n".join(lines + steps_of(document["steps"])) + "\n"


def steps_of(measured):
    """The lines about the steps of bench/lightning/steps.py, as `python -m tutti.compare` has measured them."""
    if not measured:
        return []
    lines = ["""
## Steps in pairs

`ddp` in the Trainer on gloo and on Tutti in turns, by `python -m tutti.compare` with the nets of `bench/lightning/steps.py`:
the median step of each backend, and of the ratios of the pairs.

| net | ranks | pairs | gloo, ms | Tutti, ms | Tutti / gloo | least | most |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""]
    for result in measured:
        medians = [1e3 * statistics.median(run["step_seconds"] for run in result["runs"][backend])
                   for backend in ("gloo", "tutti")]
        ratios = sorted(1 / ratio for ratio in result["ratios"])
        lines.append(f"| {result['net']} | {result['ranks']} | {len(ratios)} | {medians[0]:.2f} | {medians[1]:.2f} | "
                     f"{statistics.median(ratios):.3f} | {ratios[0]:.3f} | {ratios[-1]:.3f} |")
    return lines


def title_of(link, ranks):
    return "one host" if link == MEMORY else f"{ranks} hosts, links of {link.replace('mbit', ' Mb/s').replace('gbit', ' Gb/s')}"


def draw(document, path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # equal figures give equal files
    figure, panels = pyplot.subplots(1, len(document["links"]), figsize=(4.2 * len(document["links"]), 3.2), squeeze=False,
                                     sharey=True)
    for panel, link in zip(panels[0], document["links"]):
        for strategy, style in STRATEGIES.items():
            run = next(run for run in document["runs"] if (run["link"], run["strategy"]) == (link, strategy))
            seconds, accuracy = zip(*run["points"])
            panel.plot(seconds, [100 * value for value in accuracy], marker="o", markersize=3, label=strategy.partition(",")[0],
                       **style)
        panel.set_title(title_of(link, document["ranks"]), fontsize=9)
        panel.set_xlabel("seconds of training", fontsize=8)
        panel.tick_params(labelsize=7)
    panels[0][0].set_ylabel("validation accuracy, %", fontsize=8)
    panels[0][-1].legend(fontsize=7)
    figure.suptitle(f"Training on Fashion-MNIST in Lightning's Trainer, {document['ranks']} ranks, a point for each epoch: "
                    "higher and further left is better", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def write(document):
    (RESULTS / "lightning.json").write_text(json.dumps(document, indent=1) + "\n")
    (RESULTS / "lightning.md").write_text(page_of(document))
    draw(document, RESULTS / "lightning.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", nargs="+", default=[MEMORY, "100mbit"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--add-steps", nargs="+", type=pathlib.Path,
                        help="measures nothing, and adds what tutti.compare has measured of steps.py to the results: NET.json")
    idle.add_loaded(parser)
    parser.add_argument("--strategy", help=argparse.SUPPRESS)
    parser.add_argument("--link", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank-file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_file:
        return train(options.strategy, options)
    if options.add_steps:
        document = json.loads((RESULTS / "lightning.json").read_text())
        document["steps"] = [{"net": file.stem, **json.loads(file.read_text())} for file in options.add_steps]
        return write(document)
    in_use, runs = idle.wait_until_idle(options.loaded), []
    for number, seed in enumerate(options.seeds):
        for link in options.links:
            names = list(STRATEGIES)
            turn = number % len(names)  # the speed of a machine drifts
            for strategy in names[turn:] + names[:turn]:
                run = measure(strategy, link, seed, options)
                runs.append({"strategy": strategy, "link": link, "seed": seed, **run})
                print(f"{link} {strategy}: {100 * run['points'][-1][1]:.2f} % after {run['points'][-1][0]:.1f} s", flush=True)
    import lightning

    document = {"date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "system": platform.machine(),
                "torch": runs[0]["torch"], "lightning": lightning.__version__, "in_use": in_use, "ranks": options.ranks,
                "seconds_of": "of the slowest rank, with the average of weights before each validation",
                "links": options.links, "seeds": options.seeds, "runs": runs, "steps": []}
    write(document)


if __name__ == "__main__":
    main()
