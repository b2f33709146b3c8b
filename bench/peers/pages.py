"""How the rows of a comparison become a page: tables, the rows where Tutti is behind, and the file with every row."""

import json
import pathlib
import subprocess
import sys

from comparison import idle, show_bytes, summarize
from peers import PYTHON


def show_us(us):
    return "—" if us is None else f"{us:.2f}" if us < 10 else f"{us:,.0f}"


# Columns that tables begin with: title → function that shows the entry's value.
COLLECTIVE = {"collective": lambda entry: entry["collective"]}
RANKS = {"ranks": lambda entry: str(entry["ranks"])}
SIZE = {"size": lambda entry: show_bytes(entry["bytes"])}


def time_of(entry, name):
    return show_us(entry["time_us"].get(name))


def table(entries, names, columns, rivals, show=time_of):
    """`columns`, a column for each of `names`, and one for each of `rivals`."""
    names = [n for n in names if any(n in e["time_us"] for e in entries)]
    ratios = [r for r in rivals if any(f"times_faster_than_{r}" in e for e in entries)]
    titles = [*columns, *names, *["× " + r.replace("_", " ") for r in ratios]]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "".join(" --- |" if title in COLLECTIVE else " ---: |" for title in titles)
    for e in entries:
        cells = [value(e) for value in columns.values()]
        cells += [show(e, n) for n in names]
        cells += [f"{e[key]:.2f}" if (key := f"times_faster_than_{r}") in e else "—" for r in ratios]
        yield "| " + " | ".join(cells) + " |"


def worst(entry, rivals):
    """Tutti's advantage over the best of the other libraries; an older build of Tutti does not count."""
    return min([entry[k] for r in rivals if r != "before" and (k := f"times_faster_than_{r}") in entry], default=1e9)


def where_behind(title, entries, names, columns, rivals, show=time_of):
    if any("tutti" in e["time_us"] for e in entries):
        yield title + "\n"
        behind = sorted((e for e in entries if worst(e, rivals) < 1), key=lambda e: worst(e, rivals))
        yield from table(behind, names, columns, rivals, show) if behind else ["Nowhere."]


def heading(result, what, script, page):
    if result["stopped"]:
        yield f"**Incomplete**: the measurement was stopped ({result['stopped']}).\n"
    yield f"{result['date']}, {result['machine']}. Means over the calls, medians of {result['rounds']} interleaved rounds, µs; f32, sum,"
    yield what
    yield f"Written by `bench/peers/{script}`; every row of every round, with p50, p99 and maximum, is in `{page}.json`.\n"
    yield idle.line(result["in_use"]) + "\n"
    if "before" in result["versions"]:
        yield "`before` is an older build of `tutti`, `× before` the time of `before` / the time of `tutti`.\n"
    yield "Versions: " + "; ".join(f"{n}: {v}" for n, v in result["versions"].items()) + ".\n"


def result_of(facts, rows, labels, rivals):
    versions = {row["name"]: " ".join(row["version"].split()) for row in rows}
    return {**facts, "versions": versions, "summary": summarize(rows, labels, rivals), "rows": rows}


def write_page(folder, page, result, lines):
    """PAGE.json, a line for each row, and PAGE.md with the lines."""
    text = ["{"] + [f'"{k}": {json.dumps(v)},' for k, v in result.items() if k not in ("summary", "rows")]
    for key, end in (("summary", "],"), ("rows", "]\n}\n")):
        text += [f'"{key}": [', ",\n".join(json.dumps(entry) for entry in result[key]), end]
    (folder / f"{page}.json").write_text("\n".join(text))
    (folder / f"{page}.md").write_text("\n".join(lines).rstrip() + "\n")
    print((folder / f"{page}.md").read_text())


def plot(folder, page):
    if PYTHON.exists():
        subprocess.run([PYTHON, pathlib.Path(__file__).with_name("plot.py"), page, folder])
    else:
        print(f"no plot: {PYTHON} is missing: run `.ci/install plots`", file=sys.stderr)
