"""Runs one training: train_fashion_mnist on all ranks, on this machine's loopback or on hosts with links."""

import datetime
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench/hosts"))
import idle
from links import Hosts, end_orderly, killed_at_end, make_secret, run_ranks

PROGRAM = "train_fashion_mnist"
LOOPBACK = "loopback"
TIMEOUT_S = 3600
RANKS = 4
BATCH = 64  # images per rank and step
EPOCH_STEPS = 60000 // (RANKS * BATCH)  # steps in which the ranks see all images once
MODELS = {
    # A whole training has `evaluations` evaluations, each after `evaluation_steps` steps: four epochs of the cnn, 90
    # steps of the mlp, whose steps are slow. Short runs are long enough for a median, and are repeated `rounds` times;
    # on a slow link a step takes 10 s. Short runs of async (async_steps, async_rounds) are longer, so that they see
    # several rounds of async.
    "cnn": {"sgd": 0.05, "adam": 0.001, "evaluations": 4, "evaluation_steps": EPOCH_STEPS, "qadam_warm_up": 100,
            "short_steps": 30, "async_steps": 200, "rounds": 5, "async_rounds": 5},
    "mlp": {"sgd": 0.05, "adam": 0.0003, "evaluations": 3, "evaluation_steps": 30, "qadam_warm_up": 20,
            "short_steps": 5, "async_steps": 20, "rounds": 3, "async_rounds": 3},
}


def run_of(model, strategy, optimizer, **other):
    """The description of a run for `train`: defaults of the model (learning rate, 4 ranks), and the given values."""
    return {"model": model, "strategy": strategy, "optimizer": optimizer, "ranks": RANKS, "batch": BATCH,
            "lr": MODELS[model]["adam" if "adam" in optimizer else "sgd"], "decay": True, **other}


def arguments(args, run, result):
    program = [args.bin / PROGRAM, "--model", run["model"], "--strategy", run["strategy"], "--optimizer",
               run["optimizer"], "--lr", run["lr"], "--epochs", run["epochs"], "--seed", run["seed"], "--batch",
               run["batch"], "--max-steps", run["max_steps"], "--json", result]
    if run["decay"]:
        program.append("--decay")
    return [str(word) for word in program]


def on_ranks(args, run, program):
    """The command that starts `program` on all ranks of this machine."""
    return [str(args.bin / "tutti"), "launch", "-n", str(run["ranks"]), "--"] + program


def on_loopback(args, run, result):
    command = on_ranks(args, run, arguments(args, run, result))
    with killed_at_end() as start:
        code = start(command, stdout=subprocess.DEVNULL).wait(TIMEOUT_S)
    if code != 0:
        raise subprocess.CalledProcessError(code, command)


def on_hosts(args, run, result, directory):
    with Hosts(run["ranks"], run["link"]) as hosts:
        run_on_hosts(hosts, arguments(args, run, result), directory)


def run_on_hosts(hosts, program, directory, until=lambda: False):
    """Runs `program` as one rank on every host until all have ended, or until `until()`, when the ranks are killed."""
    secret = make_secret(directory)
    ranks = range(hosts.count)
    run_ranks([hosts.command(rank, program) for rank in ranks], [hosts.environment(rank, secret) for rank in ranks],
              TIMEOUT_S, until, stdout=subprocess.DEVNULL)


def train(args, run):
    """Makes the run and returns the row that train_fashion_mnist writes about it."""
    with tempfile.TemporaryDirectory() as name:
        result = pathlib.Path(name) / "row.json"
        if run["link"] == LOOPBACK:
            on_loopback(args, run, result)
        else:
            on_hosts(args, run, result, pathlib.Path(name))
        return json.loads(result.read_text())


class Runs:
    """The runs made so far, kept in a file. `make` (train, or a function like it) makes a missing run from `args`.

    A row says when, where and with which build it was made; rows of earlier versions of this script do not. What another
    build has made, or nobody knows which, is made again, unless --any-program is given.
    """

    def __init__(self, args, file, make):
        end_orderly()
        self.args = args
        self.make = make
        self.path = ROOT / "build/training" / file
        self.rows = json.loads(self.path.read_text()) if self.path.exists() else []
        self.used = []  # rows that were asked for
        self.program = hashlib.sha256((args.bin / PROGRAM).read_bytes()).hexdigest()[:16]

    def get(self, **run):
        row = self.known(run) or self.made(run)
        self.used.append(row)
        return row

    def known(self, run):
        for row in self.rows[::-1]:
            same_program = self.args.any_program or row.get("program") == self.program
            if same_program and all(row.get(name) == value for name, value in run.items()):
                return row
        return None

    def made(self, run):
        in_use = idle.wait_until_idle(self.args.loaded)
        print(" ".join(f"{name}={value}" for name, value in run.items()), file=sys.stderr, flush=True)
        row = {**self.make(self.args, run), **run, "date": datetime.date.today().isoformat(),
               "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, host {platform.node()}",
               "program": self.program, "in_use": in_use}
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n")
        return row
