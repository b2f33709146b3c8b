"""``python -m tutti.compare [options] script.py [arguments]``: the user's own script under gloo and under Tutti.

The script, one that torchrun starts, is run as it is: the backend that it names is replaced. The two backends take
turns, so that other work of the machine slows both alike. Printed are the time of a step (from one ``optimizer.step()``
to the next), the share of that time in which communication was under way, the ratio of the two steps, and between which
numbers that ratio lies in single pairs of runs.
"""

import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

BACKENDS = ("gloo", "tutti")
PATIENCE = 40  # seconds; torchrun gives its ranks 30, and a torchrun that is killed leaves them


class Failure(Exception):
    """The reason why nothing was measured, as a text for the user."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tutti.compare",
        description="Runs a training script, which torchrun could start, under gloo and under Tutti, and compares.",
        epilog="A script that calls tutti.torch.register, or uses tutti.torch.DistributedDataParallel, cannot run under "
        "gloo: leave the call out, and name the strategy by --strategy. Strategies that exchange weights or momentum "
        "(decentralized, async, qadam) need Tutti's wrapper, and cannot be compared by this command.")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="ranks on this machine (default: 2)")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="runs under each backend (default: 3)")
    parser.add_argument("--warmup", type=int, default=5, metavar="N", help="first steps, not counted (default: 5)")
    parser.add_argument("--steps", type=int, default=30, metavar="N",
                        help="steps measured in each run, after which the script is ended (default: 30)")
    parser.add_argument("--strategy", metavar="NAME",
                        help="under Tutti, each model of torch's DistributedDataParallel exchanges its gradients by this "
                        "strategy, as after tutti.torch.register(model, NAME): bytegrad (default: exact averages)")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds for one run (default: 600)")
    parser.add_argument("--json", metavar="FILE", help="write all numbers to FILE")
    parser.add_argument("--plot", metavar="FILE", help="draw the numbers with matplotlib into FILE (.svg, .png, .pdf)")
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser


def _end(torchrun: subprocess.Popen) -> None:
    """Ends torchrun and, by torchrun, its ranks, unless all have ended."""
    if torchrun.poll() is not None:
        return
    print(f"python -m tutti.compare: ending the ranks, which may take up to {PATIENCE} s", file=sys.stderr, flush=True)
    # A second Ctrl-C would leave ranks behind.
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    torchrun.terminate()
    try:
        torchrun.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        torchrun.kill()
        torchrun.wait()
    for number, handler in former.items():
        signal.signal(number, handler)


def run_once(options, backend: str) -> list[dict]:
    """Runs the script under ``backend``; returns what each rank has measured, in the order of ranks."""
    strategy = options.strategy if options.strategy and backend == "tutti" else ""
    with tempfile.TemporaryDirectory(prefix="tutti-compare-") as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks),
                   "-m", "tutti._measured_rank", backend, strategy, folder, str(options.warmup), str(options.steps),
                   options.script, *options.arguments]
        # A file and no pipe: torchrun never waits for a reader, and a process that the script leaves may keep it open.
        output = pathlib.Path(folder, "output")
        with output.open("wb") as file:
            # In a session of its own: Ctrl-C in a terminal reaches torchrun by _end alone.
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(options.timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"under {backend}, {options.script} did not end in {options.timeout:g} s") from None
        finally:
            _end(process)
        if process.returncode != 0:
            text = output.read_text(errors="replace")
            raise Failure(f"under {backend}, {options.script} failed:\n{text[-4000:]}")
        results = [json.loads(file.read_text()) for file in pathlib.Path(folder).glob("rank*.json")]
    results.sort(key=lambda result: result["rank"])
    if len(results) != options.ranks:
        raise Failure(f"under {backend}, {len(results)} of {options.ranks} ranks of {options.script} made a process group")
    short = [result for result in results if not result["step_seconds"]]
    if short:
        raise Failure(f"{options.script} made {short[0]['optimizer_steps']} optimizer steps, and --warmup={options.warmup} "
                      "of them are not counted: let it make more, or lower --warmup")
    if not all(result["had_backend"] for result in results):
        raise Failure(f"under {backend}, no process group of {options.script} ran on {backend}, so there is nothing to "
                      "compare: let the script make its groups by init_process_group, new_group or init_device_mesh, "
                      "of any backend for the CPU")
    if strategy and not all(result["registered"] for result in results):
        raise Failure(f"{options.script} made no model of torch.nn.parallel.DistributedDataParallel, whose gradients "
                      f"--strategy={strategy} could exchange: leave --strategy out")
    return results


def summary(results: list[dict]) -> dict:
    """One run in two numbers: the slowest rank's median step, and the mean share of communication."""
    shares = [result["communication_share"] for result in results]
    return {
        "step_seconds": max(statistics.median(result["step_seconds"]) for result in results),
        "communication_share": None if None in shares else statistics.mean(shares),
    }


def compare(options, progress=lambda text: None) -> dict:
    """Runs all pairs; returns ``{"runs": {backend: [summary, …]}, "ratios": [gloo's step / tutti's in each pair, …]}``."""
    runs = {backend: [] for backend in BACKENDS}
    for pair in range(options.pairs):
        for backend in BACKENDS if pair % 2 == 0 else reversed(BACKENDS):
            runs[backend].append(summary(run_once(options, backend)))
            progress(f"pair {pair + 1} of {options.pairs}: {backend} {_milliseconds(runs[backend][-1])}")
    ratios = [gloo["step_seconds"] / tutti["step_seconds"] for gloo, tutti in zip(runs["gloo"], runs["tutti"])]
    return {"script": options.script, "ranks": options.ranks, "strategy": options.strategy, "runs": runs, "ratios": ratios}


def _milliseconds(run: dict) -> str:
    return f"{run['step_seconds'] * 1e3:.2f} ms"


def _median_share(runs: list[dict]) -> float | None:
    shares = [run["communication_share"] for run in runs]
    return None if None in shares else statistics.median(shares)


def _median_step(runs: list[dict]) -> float:
    return statistics.median(run["step_seconds"] for run in runs)


def ratio(result: dict) -> float:
    """gloo's step / tutti's, of the medians that the table shows; never outside of the ratios of single pairs."""
    return _median_step(result["runs"]["gloo"]) / _median_step(result["runs"]["tutti"])


def table(result: dict) -> str:
    lines = [f"{'backend':10}{'step':>12}{'communication':>16}    medians of {len(result['ratios'])} runs, "
             f"{result['ranks']} ranks"]
    for backend, runs in result["runs"].items():
        share = _median_share(runs)
        strategy = f"    strategy {result['strategy']}" if backend == "tutti" and result["strategy"] else ""
        lines.append(f"{backend:10}{_median_step(runs) * 1e3:>9.2f} ms"
                     f"{'not measured' if share is None else f'{share:.0%}':>16}{strategy}")
    low, high = min(result["ratios"]), max(result["ratios"])
    lines.append(f"gloo's step takes {ratio(result):.2f} times as long as tutti's (in single pairs {low:.2f} to {high:.2f})")
    if low < 1 < high:
        lines.append("Pairs disagree on which of the two is faster: other work of the machine changes a step by more than "
                     "the backend does. Give more --pairs, or a machine that does nothing else.")
    return "\n".join(lines)


def plot(result: dict, path: str) -> None:
    """Draws each run as a point, and the median of each backend as a bar that shows the share of communication."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    for place, (backend, runs) in enumerate(result["runs"].items()):
        steps = [run["step_seconds"] * 1e3 for run in runs]
        step = _median_step(runs) * 1e3
        share = _median_share(runs)
        axes.bar(place, step, width=0.6, color="#9db8d2", label="step" if place == 0 else None)
        if share is not None:
            axes.bar(place, step * share, width=0.6, color="#33658a",
                     label="communication under way" if place == 0 else None)
        axes.plot([place] * len(steps), steps, "o", color="black", markersize=3, label="runs" if place == 0 else None)
    axes.set_xticks(range(len(result["runs"])), result["runs"])
    axes.set_ylabel("step [ms]")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{pathlib.Path(result['script']).name} on {result['ranks']} ranks: "
                   f"{ratio(result):.2f} x")
    axes.legend(loc="lower right")
    figure.savefig(path)
    pyplot.close(figure)


def main(arguments=None) -> None:
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in ("ranks", "pairs", "steps"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}={getattr(options, name)}: expected at least 1")
    if options.warmup < 1:
        parser.error(f"--warmup={options.warmup}: expected at least 1, since the first step begins before it is seen")
    if not options.timeout > 0:  # nan, too
        parser.error(f"--timeout={options.timeout:g}: expected seconds above 0")
    if not pathlib.Path(options.script).is_file():
        parser.error(f"no file {options.script}")
    if options.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("--plot needs matplotlib: pip install matplotlib")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the ranks are ended on the way out
    try:
        result = compare(options, lambda text: print(text, file=sys.stderr, flush=True))
    except Failure as failure:
        parser.exit(1, f"python -m tutti.compare: {failure}\n")
    except KeyboardInterrupt:
        parser.exit(128 + signal.SIGINT, "python -m tutti.compare: Ctrl-C: the ranks are ended\n")
    print(table(result))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1))
    if options.plot:
        plot(result, options.plot)


if __name__ == "__main__":
    main()
