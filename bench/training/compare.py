#!/usr/bin/env python3
"""Every algorithm and codec on Fashion-MNIST: accuracy, bytes, and time on loopback and on slower links.

    bench/training/compare.py [--models cnn mlp] [--links loopback 1gbit 100mbit] [--seeds 1 2 3]
                              [--strategies gradient_allreduce bytegrad] [--learned docs/results/training.json]

Two kinds of runs. Whole trainings on loopback, one per seed, measure what an algorithm learns; the link changes that only
for async, because the rounds of async follow the clock. Short trainings on each link, interleaved, measure the time of a
step on the link; the time of a training on a link is the number of its steps times the time of a step. async is trained
as a whole on each link with the cnn; with the mlp on loopback alone (on other links the steps are timed, and what async
learns and sends with the mlp is not known). qadam is timed in either phase; a step of the warm-up takes as long as one of
gradient_allreduce with Adam.

With --learned no training is made anew of which the earlier results have what it learned; steps are timed anew, and so
are the trainings of async on each link.

Writes training.json, training.md and plots into docs/results. Runs are kept in build/training/runs.json; a run that the
file holds is not run again. Links need root (network namespaces, tc). Needs build/release (`make build`).
"""

import argparse
import json
import pathlib
import statistics

import results
from page import write_page
from runs import EPOCH_STEPS, LOOPBACK, MODELS, Runs, run_of, train

WHOLE = ("model", "strategy", "optimizer", "seed", "link")  # which training a row tells of
NO_COMMUNICATION = "async:sync_interval_ms=250000"  # rounds so rare that a short run has none
STRATEGIES = [
    ("gradient_allreduce", "sgd"),
    ("gradient_allreduce:codec=bf16", "sgd"),
    ("gradient_allreduce:codec=fp16", "sgd"),
    ("bytegrad", "sgd"),
    ("bytegrad:codec=minmax_uint8", "sgd"),
    ("bytegrad:codec=uint4_block", "sgd"),
    ("bytegrad:codec=uint4_block,rotation=true,error_feedback=true", "sgd"),
    ("bytegrad:codec=sign,error_feedback=true", "sgd"),
    ("bytegrad:codec=topk,error_feedback=true", "sgd"),
    ("decentralized", "sgd"),
    ("decentralized:peer_selection_mode=shift_one", "sgd"),
    ("low_precision_decentralized", "sgd"),
    ("async", "sgd"),
    ("gradient_allreduce", "adam"),
    ("qadam", "qadam"),
]


def chosen(args):
    """STRATEGIES, or those that --strategies names and the exact ones with which they are compared."""
    if not args.strategies:
        return STRATEGIES
    exact = {("gradient_allreduce", "sgd"), ("gradient_allreduce", "adam" if "qadam" in args.strategies else "sgd")}
    return [row for row in STRATEGIES if row in exact or (row[0] in args.strategies and row[1] != "adam")]


def depends_on_link(strategy):
    return strategy.startswith("async")


def trained_on_each_link(model, strategy):
    return depends_on_link(strategy) and model == "cnn"


def whole(runs, model, strategy, optimizer, seed, link):
    settings = MODELS[model]
    if not trained_on_each_link(model, strategy):
        for row in runs.args.learned:
            if [row[name] for name in WHOLE] == [model, strategy, optimizer, seed, link]:
                return row
    if strategy == "qadam":
        strategy += f":warmup_steps={settings['qadam_warm_up']}"
    return runs.get(**run_of(model, strategy, optimizer, seed=seed, link=link, epochs=settings["evaluations"],
                             max_steps=settings["evaluation_steps"]))


def measure_steps(runs, model):
    """Median milliseconds and bytes per step by (strategy, optimizer, link)."""
    cells = {}
    strategies = chosen(runs.args) + [(NO_COMMUNICATION, "sgd")]
    settings = MODELS[model]
    for round_number in range(max(settings["rounds"], settings["async_rounds"])):
        for link in runs.args.links:
            for strategy, optimizer in strategies:
                if round_number >= settings["async_rounds" if depends_on_link(strategy) else "rounds"]:
                    continue
                # qadam is timed after its warm-up.
                short = strategy + ":warmup_steps=1" if strategy == "qadam" else strategy
                steps = settings["async_steps" if depends_on_link(strategy) else "short_steps"]
                row = runs.get(**run_of(model, short, optimizer, seed=1, link=link, epochs=1, max_steps=steps,
                                        round=round_number))
                cells.setdefault((strategy, optimizer, link), []).append(row)
    return {key: {"step_ms": statistics.median(row["step_ms"] for row in rows),
                  "bytes_per_step": rows[0]["step_bytes"] / rows[0]["ranks"]}
            for key, rows in cells.items()}


def cell_of(steps, model, strategy, optimizer, link, trained):
    """The mean time and bytes of a step of the whole training `trained`."""
    cell = steps[strategy, optimizer, link]
    if strategy == "qadam":
        warm_up = MODELS[model]["qadam_warm_up"] / trained["steps"]
        exact = steps["gradient_allreduce", "adam", link]
        return {name: warm_up * exact[name] + (1 - warm_up) * cell[name] for name in cell}
    if trained_on_each_link(model, strategy):
        moved = trained["wire_bytes"] / trained["steps"] / trained["ranks"]
        return {"step_ms": trained["step_ms"], "bytes_per_step": moved}
    return {**cell, "bytes_per_step": None} if depends_on_link(strategy) else cell


def seconds_to(history, accuracy):
    """The time when a training reached `accuracy`, interpolated between the ends of its epochs; None: never."""
    before = {"accuracy": 0.1, "seconds": 0.0}  # an untrained model guesses one of ten classes
    for epoch in history:
        if epoch["accuracy"] >= accuracy:
            share = (accuracy - before["accuracy"]) / (epoch["accuracy"] - before["accuracy"])
            return before["seconds"] + share * (epoch["seconds"] - before["seconds"])
        before = epoch
    return None


def rows_of(runs, model, steps):
    rows = []
    for seed in runs.args.seeds:
        for strategy, optimizer in chosen(runs.args):
            for link in runs.args.links:
                own = trained_on_each_link(model, strategy)
                place = link if own else LOOPBACK
                known = place == link or not depends_on_link(strategy)  # `trained` learns as a training on `link` would
                trained = whole(runs, model, strategy, optimizer, seed, place)
                cell = cell_of(steps, model, strategy, optimizer, link, trained)
                factor = 1 if own else cell["step_ms"] * trained["steps"] / 1000 / trained["history"][-1]["seconds"]
                history = [{**epoch, "seconds": epoch["seconds"] * factor} for epoch in trained["history"]]
                rows.append({"model": model, "strategy": strategy, "optimizer": optimizer, "seed": seed, "link": link,
                             "ranks": trained["ranks"], "steps": trained["steps"],
                             "trained_on": place, "accuracy": trained["accuracy"],
                             "seconds": history[-1]["seconds"],
                             "epoch_seconds": history[-1]["seconds"] * EPOCH_STEPS / trained["steps"], **cell,
                             "weights_identical": trained["weights_identical"],
                             "history": history if known else []})
    exact = [row["accuracy"] for row in rows if (row["strategy"], row["optimizer"]) == STRATEGIES[0]]
    target = statistics.mean(exact) - 0.01
    for row in rows:
        row["target_accuracy"] = target
        row["seconds_to_target"] = seconds_to(row["history"], target)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_options(parser)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--links", nargs="+", default=[LOOPBACK, "1gbit", "100mbit"], help="loopback, or rates of tc")
    parser.add_argument("--strategies", nargs="+", default=[], metavar="STRATEGY",
                        help="strategies to train, beside the exact ones to compare with; default: all",
                        choices=[strategy for strategy, _ in STRATEGIES])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--learned", type=lambda file: json.loads(pathlib.Path(file).read_text())["rows"], default=[],
                        metavar="FILE", help="a training.json: what these trainings learned is taken from there")
    args = parser.parse_args()
    runs = Runs(args, "runs.json", train)
    rows, steps = [], {}
    for model in args.models:
        steps[model] = measure_steps(runs, model)
        rows += rows_of(runs, model, steps[model])
    left_out = [f"`{strategy}`" + (" with Adam" if optimizer == "adam" else "")
                for strategy, optimizer in STRATEGIES if (strategy, optimizer) not in chosen(args)]
    write_page(rows, steps, NO_COMMUNICATION, left_out, runs)


if __name__ == "__main__":
    main()
