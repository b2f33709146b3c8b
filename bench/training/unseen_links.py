#!/usr/bin/env python3
"""Whether `tutti advise` names the fastest strategy, on links that docs/results/training.md does not have.

    bench/training/unseen_links.py [--cells cnn:4:50mbit:0 mlp:2:5gbit:1] [--rounds 2]
    bench/training/unseen_links.py --again      # asks `tutti advise` about the cells that were measured, and measures none

`tutti advise` predicts with constants that were fitted to docs/results: cells whose measurement has been there are no
proof of the advice any more, which the page of --again says.

A cell is a model, a number of ranks, the rate of each rank's link, and the milliseconds by which every packet arrives
later. Every rank is a host of its own (a network namespace, bench/hosts/links.py). In each cell the step without
communication is measured first; `tutti advise` gets the step, the link, the number of parameters, the largest layer of
the mlp and the buckets that the training has, and names a strategy. Then the strategies that compete train for a few
steps, in turns: in the second round in the opposite order. A time is the median step of rank 0, the mean over the
rounds. Trainings are ended after their last step, so that nothing is evaluated.

Left out, unless the advice names them, are strategies that cannot be near the fastest one:
- those of which another one, in SAME_OR_FASTER, sends the same bytes and computes no more;
- those whose bytes alone keep the link busy for longer than NEARLY times the fastest step so far;
- in later rounds, those that took more than FAR times the fastest step of the rounds before.

Writes advise.json and advise.md into docs/results. Runs are kept in build/training/advise.json (--runs); a run that
the file holds is not run again. Needs root (network namespaces, tc) and build/release (`make build`), and a quiet machine for a
quarter of an hour.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
from typing import NamedTuple

import results
from compare import NO_COMMUNICATION
from links import bits_per_second
from runs import Hosts, Runs, arguments, run_of, run_on_hosts

ASKED = "Asked on"  # begins the findings on the page
NEARLY = 1.1  # times the fastest step: an advice that is as good
FAR = 1.3
CORES = os.cpu_count()
PARAMETERS = {"cnn": 206_922, "mlp": 20_037_642}
# What `tutti advise` is told of the layers. Of the cnn nothing: most of its parameters are those of a layer that computes little.
LAYERS = {"cnn": [], "mlp": ["--layer-parameters", str(4096 * 4096 + 4096)]}
BUCKETS = ["--bucket-bytes", "1M", "--first-bucket-bytes", "64K"]  # as docs/examples/train_fashion_mnist.cc has them
STEPS = {"cnn": 40, "mlp": 8}
FIRST_STEPS = 3  # slow steps at the start, which are left out
SAME_OR_FASTER = {
    "gradient_allreduce:codec=fp16": "gradient_allreduce:codec=bf16",
    "bytegrad:codec=uint4_block,rotation=true,error_feedback=true": "bytegrad:codec=uint4_block",
}


class Cell(NamedTuple):
    model: str
    ranks: int
    rate: str
    delay_ms: float


def cell_of(text):
    model, ranks, rate, delay_ms = text.split(":")
    if model not in PARAMETERS:
        raise ValueError(model)
    bits_per_second(rate)
    return Cell(model, int(ranks), rate, float(delay_ms))


CELLS = [cell_of(text) for text in (
    "cnn:4:20mbit:0", "cnn:4:50mbit:0", "cnn:4:200mbit:0", "cnn:4:500mbit:0", "cnn:4:100mbit:2", "cnn:2:50mbit:0",
    "cnn:2:200mbit:1", "mlp:4:300mbit:0", "mlp:4:500mbit:1", "mlp:4:2gbit:0", "mlp:4:5gbit:0", "mlp:2:200mbit:0",
    "mlp:2:1gbit:0.5", "mlp:2:5gbit:0")]


def advice(tutti, cell, step_ms, cores):
    """What `tutti advise` says of a training whose ranks share `cores`."""
    link = cell.rate.replace("mbit", "M").replace("gbit", "G")
    words = [tutti, "advise", "--json", "--ranks", cell.ranks, "--link", link, "--parameters", PARAMETERS[cell.model],
             "--step-ms", step_ms, "--cores-per-rank", cores / cell.ranks, *BUCKETS, *LAYERS[cell.model]]
    if cell.delay_ms:
        words += ["--delay", f"{cell.delay_ms}ms"]
    return json.loads(subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout)


def median_ms(lines):
    """The median step of the lines that a training has written with --trace."""
    times = [line.split()[:2] for line in lines[FIRST_STEPS:]]
    return 1e3 * statistics.median(float(end) - float(begin) for begin, end in times)


def train_steps(args, hosts, run):
    """Makes the run on the hosts until rank 0 has made its steps."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        trace = directory / "steps.0"
        program = arguments(args, run, directory / "row.json") + ["--trace", str(directory / "steps")]

        def steps():
            return trace.read_text().splitlines() if trace.exists() else []

        run_on_hosts(hosts, program, directory, until=lambda: len(steps()) >= run["max_steps"])
        return {"step_ms": median_ms(steps())}


def candidates(told):
    """The rows of the strategies to measure, in the order of their bytes."""
    rows = [row for row in told["strategies"]
            if row["competes"] and "step_s" in row and (row["strategy"] not in SAME_OR_FASTER or row["strategy"] == told["advice"])]
    return sorted(rows, key=lambda row: row["wire_bytes"])


class Measured:
    """The steps of the strategies in one cell; `step_ms(strategy, round)` measures one."""

    def __init__(self, cell, told, step_ms):
        self.told = told
        self.step_ms = step_ms
        self.rows = candidates(told)
        self.bytes_per_s = bits_per_second(cell.rate) / 8
        self.steps = {}  # the times of each strategy, one for each round
        self.left_out = {}  # the milliseconds for which bytes alone keep the link busy

    def fastest_ms(self):
        return min(map(statistics.mean, self.steps.values()), default=float("inf"))

    def advised(self, row):
        return row["strategy"] == self.told["advice"]

    def measure(self, number):
        rows = self.rows
        if number == 0:
            for row in rows:
                link_ms = 1e3 * row["wire_bytes"] / self.bytes_per_s
                if link_ms > NEARLY * self.fastest_ms() and not self.advised(row):
                    self.left_out[row["strategy"]] = link_ms
                else:
                    self.steps[row["strategy"]] = [self.step_ms(row["strategy"], number)]
            return
        limit = FAR * self.fastest_ms()
        near = [row for row in rows if row["strategy"] in self.steps
                and (self.advised(row) or statistics.mean(self.steps[row["strategy"]]) <= limit)]
        for row in near[::-1] if number % 2 else near:
            self.steps[row["strategy"]].append(self.step_ms(row["strategy"], number))

    def means(self):
        return {strategy: statistics.mean(times) for strategy, times in self.steps.items()}


def judged(row, named):
    """How many times as long as the fastest step the step of the strategy `named` takes, by the row of a cell.

    A strategy that was left out is far from the fastest, or as slow as another one.
    """
    step_ms = row["steps_ms"].get(SAME_OR_FASTER.get(named, named) if named not in row["steps_ms"] else named)
    if step_ms is None:
        return float("inf")
    return step_ms / row["steps_ms"][row["fastest"]]


def row_of(cell, without_ms, measured):
    steps = measured.means()
    row = {**cell._asdict(), "cores": CORES, "without_ms": without_ms, "advised": measured.told["advice"],
           "fastest": min(steps, key=steps.get), "steps_ms": steps, "left_out_ms": measured.left_out,
           "predicted_ms": {row["strategy"]: 1e3 * row["step_s"] for row in measured.rows}}
    return {**row, "ratio": judged(row, row["advised"])}


def measure_cell(cell, args, used):
    """The row of a cell, and in `used` its runs."""
    with Hosts(cell.ranks, cell.rate, cell.delay_ms, args.bin / "delay_switch") as hosts:
        runs = Runs(args, args.runs, lambda args, run: train_steps(args, hosts, run))

        def step_ms(strategy, number):
            return runs.get(**run_of(cell.model, strategy, "sgd", ranks=cell.ranks, link=cell.rate,
                                     delay_ms=cell.delay_ms, seed=1, epochs=1, max_steps=STEPS[cell.model],
                                     round=number))["step_ms"]

        without_ms = step_ms(NO_COMMUNICATION, 0)
        measured = Measured(cell, advice(args.bin / "tutti", cell, without_ms, CORES), step_ms)
        for number in range(args.rounds):
            measured.measure(number)
        used += runs.used
        return row_of(cell, without_ms, measured)


def asked_again(tutti, row):
    """The row of a cell that was measured, with what `tutti advise` says now."""
    cell = Cell(*(row[name] for name in Cell._fields))
    told = advice(tutti, cell, row["without_ms"], row["cores"])
    return {**row, "advised": told["advice"], "ratio": judged(row, told["advice"]),
            "predicted_ms": {other["strategy"]: 1e3 * other["step_s"] for other in candidates(told)}}


def link_of(row):
    rate = row["rate"].replace("mbit", " Mb/s").replace("gbit", " Gb/s")
    return rate + (f", {row['delay_ms']:g} ms" if row["delay_ms"] else "")


def tables(rows):
    yield results.line(["model", "ranks", "link, delay", "ms without communication", "fastest", "ms", "advice", "ms",
                        "× fastest", f"within {100 * (NEARLY - 1):.0f} %"])
    yield "| --- | ---: | --- | ---: | --- | ---: | --- | ---: | ---: | --- |"
    for row in rows:
        yield results.line([row["model"], str(row["ranks"]), link_of(row), f"{row['without_ms']:.1f}",
                            f"`{row['fastest']}`", f"{row['steps_ms'][row['fastest']]:.1f}", f"`{row['advised']}`",
                            step_text(row, row["advised"]), f"{row['ratio']:.2f}",
                            "yes" if row["ratio"] <= NEARLY else "**no**"])
    yield "\n## Every strategy, measured and predicted\n"
    yield "Milliseconds of a step, measured (predicted). Where the bytes alone keep the link busy for too long: > and that time.\n"
    strategies = list(dict.fromkeys(name for row in rows for name in row["predicted_ms"]))
    for left_out, like in SAME_OR_FASTER.items():
        if left_out not in strategies:
            yield f"`{left_out}` is left out: it sends the bytes of `{like}`, and computes no less.\n"
    yield results.line(["strategy", *(f"{row['model']}, {row['ranks']} ranks, {link_of(row)}" for row in rows)])
    yield "| --- |" + " ---: |" * len(rows)
    for name in strategies:
        yield results.line([f"`{name}`", *(cell_text(row, name) for row in rows)])


def cell_text(row, name):
    if name not in row["predicted_ms"]:
        return "—"
    return f"{step_text(row, name)} ({row['predicted_ms'][name]:.1f})"


def step_text(row, name):
    """The measured step of a strategy, or what is known of a strategy that was not measured."""
    if name in row["steps_ms"]:
        return f"{row['steps_ms'][name]:.1f}"
    return f"> {row['left_out_ms'][name]:.1f}" if name in row["left_out_ms"] else "not measured"


def method(args, used):
    """The lines about how and where the cells were measured."""
    return [
        "Made by `bench/training/unseen_links.py`; the text at its top describes the method.", "",
        f"{results.measured(used)}, which the ranks share."
        f" {args.rounds} rounds of {STEPS['cnn']} steps of the cnn and {STEPS['mlp']} of the mlp; the first {FIRST_STEPS} do not count. The",
        "models and hosts are those of the [training table](training.md), whose links are other ones.", "", results.beside(used), ""]


def write_page(about, rows, args):
    hits = sum(row["ratio"] <= NEARLY for row in rows)
    title, cells = "links that the training table lacks", ""
    if args.again:
        title = "links that were measured before"
        cells = ", of cells that were measured earlier, and to which constants of the prediction have been fitted"
    lines = [
        f"# The advice of `tutti advise`, on {title}", "",
        *about,
        f"{ASKED} {datetime.date.today()}{cells}: the advice is the fastest strategy, or one within {100 * (NEARLY - 1):.0f} %, in"
        f" {hits} of {len(rows)} cells.",
        "The fastest step is the fastest measured one, also where it is shorter than the step without communication, which shows",
        "how much the machine's noise is. `async`, `sign` and `topk`, which lose accuracy, and `qadam`, which is an Adam, do not",
        "compete.", "",
        *tables(rows), ""]
    results.write(args.out, "advise", lines, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser)
    parser.add_argument("--cells", type=cell_of, nargs="+", default=CELLS, metavar="MODEL:RANKS:RATE:DELAY_MS",
                        help="RATE is a rate of tc; default: those of CELLS")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="ask about the cells of --out again, and measure nothing")
    parser.add_argument("--runs", default="advise.json", help="the file in build/training that keeps the runs")
    args = parser.parse_args()
    if args.again:
        page = (args.out / "advise.md").read_text()
        about = page.partition("\n\n")[2].partition(f"{ASKED} ")[0].splitlines()  # between the title and the findings
        measured = json.loads((args.out / "advise.json").read_text())["rows"]
        write_page(about, [asked_again(args.bin / "tutti", row) for row in measured], args)
    else:
        used = []
        rows = [measure_cell(cell, args, used) for cell in args.cells]
        write_page(method(args, used), rows, args)


if __name__ == "__main__":
    main()
