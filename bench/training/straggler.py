#!/usr/bin/env python3
"""What one slow rank costs the others: the step of rank 0, with all at full speed or with a straggler.

    bench/training/straggler.py [--ranks 4 2] [--strategies gradient_allreduce async async:max_staleness=8]

Trains the cnn for a fixed number of steps on loopback. The straggler is the last rank, at half speed: the process of the
straggler is stopped and continued in turns of 20 ms. A stopped rank leaves its core to other ranks, and these would gain
by the free core what they lose by waiting. So every rank is tied to a core (rank r to core r modulo the number of cores),
and rank 0 does not share a core with the straggler. Rounds are interleaved.

Two figures of rank 0 are measured: the median step, which moves with all else that the machine does; and the time of a
step that the training thread slept, neither on a core nor in line for one, which only communication causes. The sleep
that a straggler adds is the cost of waiting. Accuracy is not measured.

Writes straggler.json and straggler.md into docs/results. Runs are kept in build/training/straggler.json; a run that the
file holds is not run again. Needs build/release (`make build`).
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import results
from links import killed_at_end
from runs import LOOPBACK, TIMEOUT_S, Runs, arguments, on_ranks, run_of

TURN_S = 0.02  # the straggler runs and is stopped in turns of this length
CORES = os.cpu_count()
EVEN, STRAGGLER = "even", "straggler"
LIMIT = 0.05  # the most that waiting may cost with async, as a share of the step of rank 0
# A shell script for each rank: it writes its process id to a file and then becomes the program on its core.
ON_ITS_CORE = (f'echo $$ > "$0/$TUTTI_RANK.new" && mv "$0/$TUTTI_RANK.new" "$0/$TUTTI_RANK" && '
               f'exec taskset -c $((TUTTI_RANK % {CORES})) "$@"')


def slow_down(launched, straggler):
    """Stops and continues the straggler in turns until the launcher has ended."""
    is_stopped = False
    while launched.poll() is None:
        is_stopped = not is_stopped
        with contextlib.suppress(ProcessLookupError):
            os.kill(straggler, signal.SIGSTOP if is_stopped else signal.SIGCONT)
        time.sleep(TURN_S)


def process_of(launched, file):
    while not file.exists():
        if launched.poll() is not None:
            raise RuntimeError(f"the ranks ended with exit code {launched.returncode} before they began")
        time.sleep(0.01)
    return int(file.read_text())


def slept_ns(process):
    """The time that the main thread has slept up to now, counted from a fixed but unknown time on."""
    on_core, in_line, _ = map(int, pathlib.Path(f"/proc/{process}/schedstat").read_text().split())
    return time.monotonic_ns() - on_core - in_line


def slept_ms_per_step(launched, process, steps):
    """The mean sleep per step of rank 0, between its lines after a tenth and after nine tenths of its steps."""
    slept = {}
    for line in launched.stdout:
        shown = re.search(r"epoch 1/1 +(10|90) %", line)
        if shown:
            slept[shown.group(1)] = slept_ns(process)
    if len(slept) < 2:
        raise RuntimeError(f"the ranks ended with exit code {launched.wait(TIMEOUT_S)} in mid-training")
    # The kernel counts in ticks, so that the sleep of a thread that never slept may look negative.
    return max(0.0, (slept["90"] - slept["10"]) / 1e6 / (0.8 * steps))


def train_with_straggler(args, run):
    """Makes the run and returns the row that train_fashion_mnist writes about it, with `slept_ms`."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        result = directory / "row.json"
        program = ["sh", "-c", ON_ITS_CORE, name] + arguments(args, run, result)
        with killed_at_end() as start:
            launched = start(on_ranks(args, run, program), stdout=subprocess.PIPE, text=True)
            process, straggler = (process_of(launched, directory / str(rank)) for rank in (0, run["ranks"] - 1))
            if run["speed"] == STRAGGLER:
                threading.Thread(target=slow_down, args=(launched, straggler)).start()
            slept_ms = slept_ms_per_step(launched, process, run["max_steps"])
            if launched.wait(TIMEOUT_S) != 0:
                raise RuntimeError(f"the ranks ended with exit code {launched.returncode}")
        return {**json.loads(result.read_text()), "slept_ms": slept_ms}


def measure(runs, args):
    """Makes all runs and returns the rows of the table."""
    cells = {}
    for round_number in range(args.rounds):
        for ranks in args.ranks:
            for strategy in args.strategies:
                for speed in (EVEN, STRAGGLER):
                    row = runs.get(**run_of("cnn", strategy, "sgd", ranks=ranks, seed=1, link=LOOPBACK, epochs=1,
                                            max_steps=args.steps, speed=speed, round=round_number))
                    cells.setdefault((ranks, strategy), {}).setdefault(speed, []).append(row)
    rows = []
    for (ranks, strategy), by_speed in cells.items():
        row = {"ranks": ranks, "strategy": strategy}
        for name in ("step_ms", "slept_ms"):
            row[name] = {speed: [run[name] for run in made] for speed, made in by_speed.items()}
        pairs = list(zip(row["step_ms"][STRAGGLER], row["step_ms"][EVEN]))
        row["ratio"] = statistics.median(slow / even for slow, even in pairs)
        slept = [statistics.median(row["slept_ms"][speed]) for speed in (STRAGGLER, EVEN)]
        row["cost"] = (slept[0] - slept[1]) / statistics.median(row["step_ms"][EVEN])
        rows.append(row)
    return rows


def table(rows):
    lines = ["| ranks | strategy | ms per step, even | with a straggler | ratio | slept, even | with a straggler |"
             " waiting costs | at most 5 % |",
             "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        step, slept = ([f"{statistics.median(row[name][speed]):.2f}" for speed in (EVEN, STRAGGLER)]
                       for name in ("step_ms", "slept_ms"))
        holds = "yes" if row["cost"] <= LIMIT else "**no**"
        cells = [str(row["ranks"]), f"`{row['strategy']}`", *step, f"{row['ratio']:.2f}", *slept,
                 f"{100 * row['cost']:.1f} %", holds if row["strategy"].startswith("async") else "not asked"]
        lines.append(results.line(cells))
    return lines


def write_page(rows, runs):
    args = runs.args
    lines = [
        "# A straggler: what one slow rank costs the others", "",
        "Made by `bench/training/straggler.py`; the text at its top describes the method.", "",
        f"{results.measured(runs.used)}, the cnn on"
        f" Fashion-MNIST on loopback, {args.steps} steps, {args.rounds} rounds in turn. Figures are those of rank 0, in"
        " milliseconds, medians over the rounds: the median step of rank 0, and the time of a step during which its training"
        " thread slept, which is neither running nor ready to run. The ratio is the median of the ratios within each round,"
        " and not the ratio of the medians beside it. The straggler is the last rank, stopped for 20 ms in"
        " every 40. Asked for:"
        " one straggler slows `async` on the others by at most 5 %.", "", results.beside(runs.used), ""] + table(rows) + ["",
        "A stopped rank leaves its core to other ranks. Where ranks outnumber cores and may run on any core, rank 0 gains"
        " time on the free core, which hides what waiting costs. Here every rank is tied to a core, and rank 0 shares none"
        " with the straggler. Other work of the machine still moves a step by a tenth or more from run to run, in either"
        " direction; so the cost of waiting is not taken from the ratio of the steps: it is what the straggler adds to the"
        " sleep, as a part of the step.", ""]
    results.write(args.out, "straggler", lines, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 2],
                        help="numbers of ranks; a number that is one more than a multiple of the cores is refused, "
                             "because rank 0 would share a core with the straggler")
    parser.add_argument("--strategies", nargs="+", metavar="STRATEGY",
                        default=["gradient_allreduce", "async", "async:max_staleness=8"])
    parser.add_argument("--steps", type=int, default=120, help="optimizer steps of each rank")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for ranks in args.ranks:
        if (ranks - 1) % CORES == 0:
            parser.error(f"--ranks {ranks}: rank 0 would share its core with the straggler; one more rank would do")
    runs = Runs(args, "straggler.json", train_with_straggler)
    write_page(measure(runs, args), runs)


if __name__ == "__main__":
    main()
