"""How the rows of a comparison become a page: tables, the rows where Tutti is behind, and the file with every row."""

import json
import pathlib
import subprocess
import sys

from comparison import OURS, idle, merged, range_of, ratio_of, rounds_of, show_bytes, summarize
from peers import PYTHON


OF_GLOO = ("gloo is called from Python, through torch.distributed, as its users call it: what these take is part of its times. "
           "The other libraries are called from C or C++.")


def show_us(us):
    return "—" if us is None else f"{us:.2f}" if us < 10 else f"{us:,.0f}"


# Columns that tables begin with: title → function that shows the entry's value.
COLLECTIVE = {"collective": lambda entry: entry["collective"]}
RANKS = {"ranks": lambda entry: str(entry["ranks"])}
SIZE = {"size": lambda entry: show_bytes(entry["bytes"])}
BEHIND = "behind"
TEXTS = (*COLLECTIVE, BEHIND)  # titles of columns without numbers


def time_of(entry, name):
    return show_us(entry["time_us"].get(name))


def table(entries, names, columns, rivals, show=time_of):
    """`columns`, a column for each of `names`, and one for each ratio of a column of Tutti to one of `rivals`."""
    names = [n for n in names if any(n in e["time_us"] for e in entries)]
    ratios = {ratio_of(prefix, r): f"{prefix}× {r}".replace("_", " ") for prefix in OURS.values() for r in rivals}
    ratios = {key: title for key, title in ratios.items() if any(key in e for e in entries)}
    titles = [*columns, *names, *ratios.values()]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "".join(" --- |" if title in TEXTS else " ---: |" for title in titles)
    for e in entries:
        cells = [value(e) for value in columns.values()]
        cells += [show(e, n) for n in names]
        cells += [f"{e[key]:.2f}" if key in e else "—" for key in ratios]
        yield "| " + " | ".join(cells) + " |"


def behind(entry, rivals):
    """Tutti's columns that are slower than the best of the other libraries: {column: its advantage, which is below 1}."""
    others = [r for r in rivals if r != "before"]  # an older build of Tutti
    least = {own: min(entry.get(ratio_of(prefix, r), 1) for r in others) for own, prefix in OURS.items()}
    return {own: advantage for own, advantage in least.items() if advantage < 1}


def where_behind(title, entries, names, columns, rivals, show=time_of):
    if any("tutti" in e["time_us"] for e in entries):
        yield title + "\n"
        worst_first = sorted((e for e in entries if behind(e, rivals)), key=lambda e: min(behind(e, rivals).values()))
        if any("tutti-private" in e["time_us"] for e in entries):
            columns = {**columns, BEHIND: lambda entry: ", ".join(behind(entry, rivals))}
        yield from table(worst_first, names, columns, rivals, show) if worst_first else ["Nowhere."]


def heading(result, what, script, page):
    if result["stopped"]:
        yield f"**Incomplete**: the measurement was stopped ({result['stopped']}).\n"
    yield f"{result['date']}, {result['machine']}. Means over the calls, medians of {result['rounds']} interleaved rounds, µs; f32, sum,"
    yield what
    yield f"Written by `bench/peers/{script}`; every row of every round, with p50, p99 and maximum, is in `{page}.json`.\n"
    yield idle.line([row.get("in_use") for row in result["rows"]]) + "\n"
    if "before" in result["versions"]:
        yield "`before` is an older build of `tutti`, `× before` the time of `before` / the time of `tutti`.\n"
    if "gloo" in result["versions"]:
        yield OF_GLOO + "\n"
    yield "Versions: " + "; ".join(f"{n}: {v}" for n, v in result["versions"].items()) + ".\n"


def earlier_rows(file):
    """The rows of earlier results; what a row does not say of its measurement is what the whole file says."""
    if not file.exists():
        return []
    result = json.loads(file.read_text())
    return [{**row, **{name: row.get(name, result[name]) for name in ("date", "machine")}}
            for row in result["rows"] if "time_us" in row]  # the oldest rows have medians alone


def result_of(options, page, rows, stopped, labels, rivals):
    """What PAGE.json is to hold: None where there are no rows."""
    if options.merge:
        rows = merged(earlier_rows(options.out / f"{page}.json"), rows, labels)
    if not rows:
        return None
    versions = {}
    for row in rows:
        versions.setdefault(row["name"], {})[" ".join(row["version"].split())] = None
    return {"date": range_of(row["date"] for row in rows), "machine": "; ".join(dict.fromkeys(row["machine"] for row in rows)),
            "rounds": rounds_of(rows, labels), "stopped": stopped,
            "versions": {name: ", ".join(of) for name, of in versions.items()},
            "summary": summarize(rows, labels, rivals), "rows": rows}


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
