"""Writes the measurements of compare.py as training.json, training.md and plots."""

import statistics

import results
from runs import BATCH, EPOCH_STEPS, LOOPBACK, MODELS


def name_of(row):
    return row["strategy"] + ({"adam": " (Adam)", "qadam": ""}.get(row["optimizer"], ""))


def by(rows, *names):
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def mean(rows, name):
    return statistics.mean(row[name] for row in rows)


def seconds(value):
    return "—" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def accuracy_of(rows):
    values = [100 * row["accuracy"] for row in rows]
    return f"{statistics.mean(values):.2f} %" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


MARK_OF_WHOLE = " ¹"  # of times that are not like those of the other lines


def table(rows, args):
    """One line per strategy: seeds averaged, links as columns; a sentence on async, which differs by link.

    Times of an async that was trained on each link are marked: they are of these trainings, and those of the other lines
    of short interleaved ones.
    """
    links = args.links
    head = ["strategy", "accuracy", "KB per step and rank"]
    for link in links:
        head += [f"ms per step, {link}", "s per epoch", "s to target"]
    lines = [results.line(head), "| --- |" + " ---: |" * (len(head) - 1)]
    for _, group in by(rows, "strategy", "optimizer").items():
        last = [row for row in group if row["link"] == links[-1]]
        cells = [f"`{name_of(group[0])}`", accuracy_of([row for row in group if row["link"] == links[0]]),
                 "—" if last[0]["bytes_per_step"] is None else f"{mean(last, 'bytes_per_step') / 1e3:,.0f}"]
        mark = MARK_OF_WHOLE if group[0]["strategy"] == "async" and is_trained_on_each_link(group) else ""
        for link in links:
            there = [row for row in group if row["link"] == link]
            times = [row["seconds_to_target"] for row in there]
            reached = None if None in times else statistics.mean(times)
            cells += [f"{mean(there, 'step_ms'):,.1f}{mark}", seconds(mean(there, "epoch_seconds")) + mark,
                      seconds(reached) + (mark if reached else "")]
        lines.append(results.line(cells))
    return lines + [""] + places_of_async([row for row in rows if row["strategy"] == "async"], links)


def is_trained_on_each_link(rows):
    """Whether the times in these rows of async are those of a training on each link, whose bytes are known then."""
    return all(row["bytes_per_step"] is not None for row in rows)


def places_of_async(rows, links):
    """A sentence on the links from which the accuracy and the bytes in the line of async are."""
    if not rows:
        return []
    where = "`async`, whose rounds follow the clock, was trained on"
    if not is_trained_on_each_link(rows):
        return [f"{where} {LOOPBACK} alone: its accuracy is from there; how it learns on the other links, and its"
                " bytes, were not measured.", ""]
    each = ", ".join(f"{accuracy_of(there)} on {link}" for (link,), there in by(rows, "link").items())
    return [f"{where} every link: {each}; its bytes are those on {links[-1]}.{MARK_OF_WHOLE} Its times are those of these"
            " trainings, which ran one after the other; the times of all other lines are those of short interleaved ones. They"
            " do not compare: under what is asked for, `async` is beside a step without communication in interleaved runs.",
            ""]


def judgements(rows, steps, no_communication, args):
    """A table of the limits that are asked for, with the measured values."""
    lines = []

    def judge(what, value, limit, at_least=True):
        if value is None:  # not measured
            return
        good = value >= limit if at_least else value <= limit
        lines.append(f"| {what} | {value:.2f} | {'≥' if at_least else '≤'} {limit} | {'yes' if good else '**no**'} |")

    if LOOPBACK not in args.links:
        return ["Nothing: loopback was not measured."]
    for model, group in by(rows, "model").items():
        ends = {key: 100 * mean(trained, "accuracy")
                for key, trained in by([row for row in group if row["link"] == LOOPBACK],
                                       "strategy", "optimizer").items()}
        for (strategy, optimizer), accuracy in ends.items():
            bits = 4 if "uint4" in strategy else 8
            compressed = strategy.startswith(("bytegrad", "low_precision", "qadam")) and "sign" not in strategy
            if not compressed or "topk" in strategy:
                continue
            exact = ends["gradient_allreduce", "adam" if optimizer == "qadam" else "sgd"]
            judge(f"{model[0]}: percentage points that `{strategy}` loses", exact - accuracy, 0.5 if bits == 8 else 1.0,
                  at_least=False)
    for model, cells in steps.items():
        def speed(strategy, over, link, cells=cells):
            both = [cells.get((name, "sgd", link)) for name in (over, strategy)]
            return both[0]["step_ms"] / both[1]["step_ms"] if all(both) else None

        if model == "mlp" and "100mbit" in args.links:
            judge("mlp, 100mbit: speed of `bytegrad` over fp32",
                  speed("bytegrad", "gradient_allreduce", "100mbit"), 3.3)
            judge("mlp, 100mbit: speed of `bytegrad` over bf16",
                  speed("bytegrad", "gradient_allreduce:codec=bf16", "100mbit"), 1.7)
        judge(f"{model}, 100mbit: step rate of `async`, of that without communication",
              speed("async", no_communication, "100mbit"), 0.95)
        judge(f"{model}, loopback: step rate of `low_precision_decentralized`, of that of `decentralized`",
              speed("low_precision_decentralized", "decentralized", LOOPBACK), 0.8)
        for link in [link for link in args.links if link != LOOPBACK]:
            judge(f"{model}, {link}: speed of `low_precision_decentralized` over `decentralized`",
                  speed("low_precision_decentralized", "decentralized", link), 1.0)
    return ["| what | measured | asked for | holds |", "| --- | ---: | ---: | --- |"] + lines


# The colour of each algorithm, as in the other pictures of docs/results; its variants differ in the marks on the line.
COLORS = {"gradient_allreduce": "#606060", "bytegrad": "#c1272d", "decentralized": "#4d648d",
          "low_precision_decentralized": "#7f9c5a", "async": "#8c564b", "qadam": "#e0a030"}
MARKS = "os^DvP"
POINTS_SHOWN = 6  # below the best accuracy; most lines are close together there
LINKS = {LOOPBACK: "loopback", "1gbit": "links of 1 Gb/s", "100mbit": "links of 100 Mb/s"}


def plot(rows, link, path):
    """Plots accuracy against time and against bytes, as means over the seeds; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot, ticker

    pyplot.rcParams["svg.hashsalt"] = "tutti"  # equal figures give equal files
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained", sharey=True)
    marks = {algorithm: iter(MARKS) for algorithm in COLORS}
    best = 0
    for _, group in by([row for row in rows if row["link"] == link], "strategy", "optimizer").items():
        epochs = range(len(group[0]["history"]))
        if not epochs:  # not trained on this link
            continue
        accuracy = [100 * statistics.mean(row["history"][e]["accuracy"] for row in group) for e in epochs]
        best = max(best, *accuracy)
        time = [statistics.mean(row["history"][e]["seconds"] for row in group) for e in epochs]
        steps = [group[0]["steps"] * (e + 1) / len(group[0]["history"]) for e in epochs]
        algorithm = group[0]["strategy"].partition(":")[0]
        style = {"color": COLORS[algorithm], "marker": next(marks[algorithm]), "markersize": 4, "linewidth": 1}
        axes[0].plot(time, accuracy, label=name_of(group[0]), **style)
        if group[0]["bytes_per_step"] is not None:
            moved = [mean(group, "bytes_per_step") * count / 1e6 for count in steps]
            axes[1].plot(moved, accuracy, **style)
    axes[0].set_xlabel("seconds of training")
    axes[1].set_xlabel("MB sent by each rank")
    axes[0].set_ylabel("test accuracy in %")
    lowest = int(best - POINTS_SHOWN)
    axes[0].set_ylim(lowest, best + 0.3)
    for axis in axes:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Training on Fashion-MNIST, a point for each epoch: higher and further left is better\n"
                    f"{rows[0]['model']}, {rows[0]['ranks']} ranks, {LINKS.get(link, link)}; accuracy below {lowest} % is left out",
                    fontsize=11)
    figure.legend(loc="outside right center", fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def write_page(rows, steps, no_communication, left_out, runs):
    args = runs.args
    args.out.mkdir(parents=True, exist_ok=True)
    lines = ["# Training: what every algorithm costs and learns", "",
             "Made by `bench/training/compare.py`; the text at its top describes the method. The page of each algorithm says when the"
             " algorithm pays ([algorithms](../algorithms.md)).", "",
             f"{results.measured(runs.used)},"
             f" {rows[0]['ranks']} ranks, seeds {', '.join(map(str, args.seeds))}. Links are those of network namespaces"
             " (tbf); bytes are those between ranks that only send messages. Ranks share the cores, so compute is slower than"
             " on machines of their own and links matter less than they would there.", "", results.beside(runs.used), ""]
    if args.learned:
        lines += ["Times, and the trainings of `async` with the cnn, are of these dates; what the other trainings learned is"
                  " of earlier ones.", ""]
    if left_out:
        lines += [f"Not measured in this run: {', '.join(left_out)}.", ""]
    for model, group in by(rows, "model").items():
        target = 100 * group[0]["target_accuracy"]
        lines += [f"## {model[0]}", "",
                  f"{group[0]['steps']} steps of {BATCH} images per rank, evaluated {len(group[0]['history'])} times; an epoch"
                  f" is {EPOCH_STEPS} steps. SGD begins with a rate of {MODELS[model[0]]['sgd']} and has momentum 0.9, Adam"
                  f" with {MODELS[model[0]]['adam']}; rates fall to 0 in a straight line. qadam warms up for"
                  f" {MODELS[model[0]]['qadam_warm_up']} steps. Target: {target:.2f} %, 1 point below fp32"
                  " `gradient_allreduce` with SGD.", ""]
        lines += table(group, args)
        for link in args.links:
            picture = f"training_{model[0]}_{link}.svg"
            if plot(group, link, args.out / picture):
                lines += [f"![accuracy against time and bytes, {model[0]}, {link}]({picture})", ""]
    without = [f"{model} {link}: {cells[no_communication, 'sgd', link]['step_ms']:,.1f}"
               for model, cells in steps.items() for link in args.links]
    lines += [f"A step without any communication takes (ms) {', '.join(without)}.", ""]
    lines += ["## What is asked for", ""] + judgements(rows, steps, no_communication, args) + [""]
    lines += ["Rows of `async` compare different trainings, whose steps differ by a tenth and more even without `async`;",
              "[another table](background.md) compares steps of one and the same training.", ""]
    results.write(args.out, "training", lines, rows)
