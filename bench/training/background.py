#!/usr/bin/env python3
"""What rounds of `async` in the background cost the training: steps while weights travel, and steps while none do.

    bench/training/background.py [--link 100mbit] [--rounds 5]

Steps of one and the same training are compared, because two trainings on a busy machine differ by more than the cost of
a round: `async` is given pauses as long as a round, so that the link is busy and quiet in turns. A step is busy when the
link of its host was busy for more than 70 % of the step, and quiet when the link was busy for less than 2 %. Where rounds
are short, `async` with the default interval leaves the link quiet often enough: all steps of that training are compared
with the quiet ones.

The hosts are namespaces of one machine: the packets of all hosts, and the switch between the hosts, take time of the
cores that train. The cost of packets alone is measured in turns with the rounds: the same training without rounds, while
bare TCP streams, which belong to no round, use the links in turns of as many seconds.

Writes background.json and background.md into docs/results. Runs are kept in build/training/background.json; a run that
the file holds is not run again. Needs root (network namespaces, tc) and build/release (`make build`).
"""

import argparse
import bisect
import contextlib
import pathlib
import statistics
import subprocess
import sys
import tempfile

import results
from links import bits_per_second, killed_at_end
from runs import Hosts, Runs, arguments, run_of, run_on_hosts

BUSY, QUIET = 0.7, 0.02  # shares of the bandwidth of a link, above and below which it is busy and quiet
FIRST_STEPS = 3  # slow steps at the start, which are left out
PORT = "29600"
NO_ROUNDS_MS = 250_000  # an interval longer than a training, which then has no round
INTERVAL_MS = 500  # the default interval of async
PAUSED, AS_IT_IS, BARE_TCP = "async, link full half of the time", "async as it is", "bare TCP half of the time"
# pause_ms, the time between rounds, is about the time of a round at 100 Mb/s. A round of the mlp fills its link.
CASES = [{"model": "mlp", "ranks": 4, "pause_ms": 10000, "max_steps": 110, "beside": (PAUSED, BARE_TCP)},
         {"model": "mlp", "ranks": 2, "pause_ms": 7000, "max_steps": 300, "beside": (PAUSED, BARE_TCP)},
         {"model": "cnn", "ranks": 4, "pause_ms": 1000, "max_steps": 400, "beside": (AS_IT_IS, BARE_TCP)}]
ASKED = 0.95


def start_traffic(start, hosts, host, *what, log=subprocess.DEVNULL):
    start(hosts.command(host, [sys.executable, str(pathlib.Path(__file__).with_name("traffic.py")), *what]), stdout=log)


def start_streams(start, hosts, seconds):
    """Starts bare TCP streams, in which every host sends to the next one."""
    for host in range(hosts.count):
        start_traffic(start, hosts, host, "receive", PORT)
    for host in range(hosts.count):
        start_traffic(start, hosts, host, "send", hosts.address((host + 1) % hosts.count), PORT, seconds, seconds)


class Link:
    """The bytes that a host sent over its link, by the lines of its counter."""

    def __init__(self, lines, rate):
        self.rate = bits_per_second(rate) / 8
        self.times, self.bytes = zip(*(map(float, line.split()) for line in lines if len(line.split()) == 2))

    def sent(self, time):
        after = min(max(bisect.bisect(self.times, time), 1), len(self.times) - 1)
        begin, end = self.times[after - 1], self.times[after]
        share = (time - begin) / (end - begin)
        return self.bytes[after - 1] + share * (self.bytes[after] - self.bytes[after - 1])

    def use(self, begin, end):
        return (self.sent(end) - self.sent(begin)) / (end - begin) / self.rate


def steps_of(trace, link):
    """The steps of one rank: use of its link, duration, and CPU time of all threads but the training thread."""
    steps = []
    before = None
    for line in trace.read_text().splitlines():
        begin, end, thread, process = map(float, line.split())
        others = process - thread
        if before is not None:
            steps.append({"use": link.use(begin, end), "ms": 1e3 * (end - begin), "others_ms": 1e3 * (others - before)})
        before = others
    return steps[FIRST_STEPS:]


def train_and_trace(args, run):
    """Trains; returns means over the busy and the quiet steps of all ranks. For AS_IT_IS all steps count as busy."""
    seconds = str(run["pause_ms"] / 1000)
    interval_ms = {PAUSED: run["pause_ms"], AS_IT_IS: INTERVAL_MS, BARE_TCP: NO_ROUNDS_MS}[run["beside"]]
    program_run = {**run, "strategy": f"async:sync_interval_ms={interval_ms}"}
    busy_from = 0 if run["beside"] == AS_IT_IS else BUSY
    with tempfile.TemporaryDirectory() as name, Hosts(run["ranks"], run["link"]) as hosts:
        directory = pathlib.Path(name)
        program = arguments(args, program_run, directory / "row.json") + ["--trace", str(directory / "steps")]
        with contextlib.ExitStack() as stack:
            logs = [directory / f"link.{host}" for host in range(hosts.count)]
            start = stack.enter_context(killed_at_end())
            for host, log in enumerate(logs):
                start_traffic(start, hosts, host, "count", hosts.DEVICE, log=stack.enter_context(log.open("w")))
            if run["beside"] == BARE_TCP:
                start_streams(start, hosts, seconds)
            run_on_hosts(hosts, program, directory)
        links = [Link(log.read_text().splitlines(), run["link"]) for log in logs]
        steps = [step for rank, link in enumerate(links) for step in steps_of(directory / f"steps.{rank}", link)]
    result = {}
    for kind, these in (("busy", [step for step in steps if step["use"] >= busy_from]),
                        ("quiet", [step for step in steps if step["use"] < QUIET])):
        if not these:
            raise RuntimeError(f"no step had a {kind} link; give the training more steps")
        result[kind] = {"steps": len(these), **{name: statistics.mean(step[name] for step in these)
                                                for name in ("ms", "others_ms")}}
    return result


def measure(runs, args):
    rows = []
    for case in CASES:
        by_traffic = {beside: [] for beside in case["beside"]}
        for round_number in range(args.rounds):
            for beside, made in by_traffic.items():
                run = run_of(case["model"], "async", "sgd", seed=1, link=args.link, epochs=1, round=round_number)
                made.append(runs.get(**{**run, **case, "beside": beside}))
        for beside, made in by_traffic.items():
            rows.append({"model": case["model"], "ranks": case["ranks"], "link": args.link, "beside": beside,
                         "kept": [run["quiet"]["ms"] / run["busy"]["ms"] for run in made],
                         "others_ms": statistics.median(run["busy"]["others_ms"] for run in made),
                         **{f"{kind}_ms": statistics.median(run[kind]["ms"] for run in made)
                            for kind in ("quiet", "busy")}})
    return rows


def table(rows):
    lines = ["| model | hosts | link | what travels | ms per step, quiet | busy | of the step rate is kept, median |"
             " of each run | at least 95 % | ms of other threads per busy step |",
             "| --- | ---: | --- | --- | ---: | ---: | ---: | --- | --- | ---: |"]
    for row in rows:
        of_each = ", ".join(f"{kept:.2f}" for kept in sorted(row["kept"]))
        holds = "yes" if statistics.median(row["kept"]) >= ASKED else "**no**"
        cells = [row["model"], str(row["ranks"]), row["link"], row["beside"], f"{row['quiet_ms']:.1f}",
                 f"{row['busy_ms']:.1f}", f"{statistics.median(row['kept']):.3f}", of_each,
                 "not asked" if row["beside"] == BARE_TCP else holds, f"{max(row['others_ms'], 0):.2f}"]
        lines.append(results.line(cells))
    return lines


def write_page(rows, runs):
    args = runs.args
    lines = [
        "# In the background: what rounds of async cost the training", "",
        "Made by `bench/training/background.py`; the text at its top describes the method.", "",
        f"{results.measured(runs.used)}, which the hosts share;",
        f"{args.rounds} trainings of each kind in turn. Asked for: `async` keeps {100 * ASKED:.0f} % of the step rate that it",
        "would have without communication.", "", results.beside(runs.used), ""] + table(rows) + ["",
        "Busy steps are those during which the link carries about all it can. In rows `async as it is` the strategy has its",
        f"default interval, {INTERVAL_MS} ms, and all steps count as busy. There are no such rows for the mlp: its rounds take about 10 s,",
        "so with the default interval the link would always be full. Rows of bare TCP show what packets, and the switch between",
        "the hosts, cost without any work of Tutti on the cores that the hosts share. On two hosts each host has one core of",
        "its own, which it still shares with the switch.", ""]
    results.write(args.out, "background", lines, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser)
    parser.add_argument("--link", default="100mbit", help="a rate of tc")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    runs = Runs(args, "background.json", train_and_trace)
    write_page(measure(runs, args), runs)


if __name__ == "__main__":
    main()
