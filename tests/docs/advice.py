#!/usr/bin/env python3
"""`tutti advise` names the fastest of the measured strategies, or one that is nearly as fast, and says what they lose.

    tests/docs/advice.py TUTTI [--verbose]      (TUTTI: the command)

Compares the advice with docs/results/training.json, for every model and link that was measured, and with
docs/results/advise.json, whose links are other ones. Strategies that lost accuracy in the former do not count, because
the advice leaves them out, too. The constants of the prediction have been fitted to both files: what is tested is that
the advice stays as good as it was. A step that is shorter than one without communication shows how much the machine's
noise is.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
sys.path.append(str(ROOT / "bench/training"))
import unseen_links

LOSSY = ("async", "sign", "topk")  # without --accept-loss never the advice
NEEDED = 0.9  # share of the cells
RANKS, CORES = 4, 2  # of the machine that measured
# Every rank was a host of its own, on a link of its own.
LINKS = {"loopback": ["--ranks-per-node", str(RANKS)], "1gbit": ["--link", "1G"], "100mbit": ["--link", "100M"]}


class Measured:
    """The rows of the measured trainings."""

    def __init__(self):
        self.rows = json.loads((RESULTS / "training.json").read_text(encoding="utf-8"))["rows"]
        # Milliseconds by (model, link), which only a sentence of the page has.
        page = (RESULTS / "training.md").read_text(encoding="utf-8")
        sentence = re.search(r"A step without any communication takes \(ms\) (.*)\.\n", page).group(1)
        self.without_ms = {(model, link): float(ms)
                           for model, link, ms in re.findall(r"(\w+) (\w+): ([\d.]+)", sentence)}

    def of(self, **fields):
        return [row for row in self.rows if all(row[name] == value for name, value in fields.items())]

    def points(self, **fields):
        return 100 * statistics.mean(row["accuracy"] for row in self.of(**fields))

    def steps(self, model, link):
        """Milliseconds of a step by strategy, for those that learn as well."""
        steps = {}
        for row in self.of(model=model, link=link, optimizer="sgd"):
            strategy = row["strategy"]
            learns = self.points(model=model, link=link, strategy=strategy, optimizer="sgd") >= 100 * row["target_accuracy"]
            if learns and not any(word in strategy for word in LOSSY):
                steps[strategy] = row["step_ms"]
        return steps

    def losses(self, strategy):
        """The points that a strategy has lost, of each model and link of which that is known."""
        for model in {row["model"] for row in self.rows}:
            for link in LINKS:
                if not all(row["history"] for row in self.of(model=model, link=link, strategy=strategy)):
                    continue
                adam = strategy == "qadam"
                own = self.points(model=model, link=link, strategy=strategy, optimizer="qadam" if adam else "sgd")
                yield self.points(model=model, link=link, strategy="gradient_allreduce", optimizer="adam" if adam else "sgd") - own


def advice(command, model, parameters, link, step_ms):
    words = [command, "advise", "--json", "--ranks", str(RANKS), "--cores-per-rank", str(CORES / RANKS),
             "--parameters", str(parameters), "--step-ms", str(step_ms), *unseen_links.BUCKETS, *unseen_links.LAYERS[model],
             *LINKS[link]]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def wrong_words(measured, told):
    """The strategies whose loss of accuracy is another than `tutti advise` says."""
    for row in told["strategies"]:
        losses = list(measured.losses(row["strategy"]))
        most = re.search(r"at most ([\d.]+) points", row["accuracy"])
        span = re.search(r"([\d.]+) to ([\d.]+) points", row["accuracy"])
        low, high = (float(span[1]), float(span[2])) if span else (0, float(most[1]) if most else 0)
        if max(losses) > high + 0.06 or (span and min(losses) < low - 0.06):
            yield f"{row['strategy']} has lost {min(losses):.2f} to {max(losses):.2f} points: {row['accuracy']}"


def show(name, hit, named, predicted_ms, steps, without_ms):
    """Prints a line about a cell, and where the advice is wrong a line for each strategy."""
    advised, fastest = steps.get(named, float("nan")), min(steps, key=steps.get)
    print(f"{'hit ' if hit else 'MISS'} {name}: advice {named}, measured {advised:.1f} ms; "
          f"fastest {fastest}, {steps[fastest]:.1f} ms; {without_ms:.1f} ms without communication"
          + (", so that the fastest is noise" if steps[fastest] < without_ms else ""))
    if not hit or "--verbose" in sys.argv:
        for strategy, ms in predicted_ms.items():
            print(f"       {strategy:60} predicted {ms:9.1f} ms, measured {steps.get(strategy, float('nan')):9.1f} ms")


def hits_of_table(command, measured):
    """For each model and link of the training table, whether the advice is good; and the words that are wrong."""
    hits, wrong = [], set()
    for (model, link), step_ms in measured.without_ms.items():
        exact = measured.of(model=model, link=link, strategy="gradient_allreduce", optimizer="sgd")[0]
        parameters = round(exact["bytes_per_step"] / (2 * (RANKS - 1) / RANKS * 4))
        told = advice(command, model, parameters, link, step_ms)
        wrong |= set(wrong_words(measured, told))
        steps = measured.steps(model, link)
        advised = steps.get(told["advice"], float("inf"))  # one that does not learn as well is no advice
        hits.append(advised <= unseen_links.NEARLY * min(steps.values()))
        predicted_ms = {row["strategy"]: 1e3 * row["step_s"] for row in told["strategies"]}
        show(f"{model} {link}", hits[-1], told["advice"], predicted_ms, steps, step_ms)
    return hits, wrong


def hits_of_other_links(command):
    """For each cell of docs/results/advise.json, whether the advice that the command gives today is good; and the cells
    of which the page names another advice."""
    hits, wrong = [], set()
    for row in json.loads((RESULTS / "advise.json").read_text(encoding="utf-8"))["rows"]:
        today = unseen_links.asked_again(command, row)
        name = " ".join(str(row[field]) for field in unseen_links.Cell._fields)
        if today["advised"] != row["advised"]:
            wrong.add(f"docs/results/advise.md has the advice {row['advised']} for {name}, and the command now names"
                      f" {today['advised']}: run bench/training/unseen_links.py --again")
        hits.append(today["ratio"] <= unseen_links.NEARLY)
        show(name, hits[-1], today["advised"], today["predicted_ms"], row["steps_ms"], row["without_ms"])
    return hits, wrong


def main():
    command = sys.argv[1]
    table, wrong = hits_of_table(command, Measured())
    other, stale = hits_of_other_links(command)
    for hits, what in ((table, "of the training table"), (other, "of docs/results/advise.json")):
        print(f"{sum(hits)} of {len(hits)} cells {what}")
    wrong |= stale
    print("\n".join(sorted(wrong)))
    good = all(sum(hits) >= NEEDED * len(hits) for hits in (table, other))
    return 0 if good and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
