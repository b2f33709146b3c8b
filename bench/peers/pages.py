"""How the rows of a comparison become a page: tables, the rows where Tutti is behind, and the file with every row."""

import json
import pathlib
import subprocess
import sys

from comparison import (OURS, cell_of, idle, merged, missing, range_of, ratio_of, rounds_of, rounds_of_ratio, show_bytes,
                        summarize)
from peers import PYTHON


OF_GLOO = ("gloo is called from Python, through torch.distributed, as its users call it: what these take is part of its times. "
           "The other libraries are called from C or C++.")
MOST = 100  # the largest ratio that is shown
OF_RATIOS = ("A ratio is the median of the ratios within each round; in parentheses are the least and the most of single rounds. "
             f"Where 1 lies between these, the rounds disagree about which library is faster. Ratios above {MOST} are not shown.")
OF_TUTTI = ("Calls of Tutti promise to be waited for (`CallOptions::caller_drives`), as a blocking call of MPI does and "
            "Tutti's own calls do not by default.")
LARGE_PAGES = "In rows of 2 MB and more all buffers lie on pages of 2 MB, whichever library they are for, where the kernel has such pages."
SMALL_PAGES = ("Tutti's buffers in the arena lie on pages of 2 MB, for which Tutti asks the kernel; those in ordinary memory, and "
               "those of the other libraries, lie on pages of 4 KB, though a program could ask for large ones.")
SOME_LARGE_PAGES = (f"{LARGE_PAGES} Rows of the other libraries without `large_pages` are older: their buffers, and Tutti's in "
                    "ordinary memory that were measured beside, lay on pages of 4 KB.")
UNKNOWN_BUILD = "Not all rows say which build of `tutti` was measured: these figures may be of older code than the page.\n"


def short(machines):
    """The processors of machines, each once: what of "2 cores of AMD EPYC, Linux 6.1" stands before the comma."""
    return "; ".join(dict.fromkeys(machine.split(",")[0] for machine in machines.split("; ")))


def show_us(us):
    return "—" if us is None else f"{us:.2f}" if us < 10 else f"{us:,.0f}"


# Columns that tables begin with: title → function that shows the entry's value.
COLLECTIVE = {"collective": lambda entry: entry["collective"]}
RANKS = {"ranks": lambda entry: str(entry["ranks"])}
SIZE = {"size": lambda entry: show_bytes(entry["bytes"])}
BEHIND = "behind"
MEASURED = "measured"
TEXTS = (*COLLECTIVE, BEHIND, MEASURED)  # titles of columns without numbers


def time_of(entry, name):
    return show_us(entry["time_us"].get(name))


def show_ratio(entry, prefix, rival):
    """A ratio, and in parentheses the least and the most of single rounds."""
    def show(ratio):
        if ratio > MOST:
            return f"> {MOST}"
        return f"{ratio:.3f}" if ratio != 1 and round(ratio, 2) == 1 else f"{ratio:.2f}"
    ratio = entry.get(ratio_of(prefix, rival))
    if ratio is None:
        return "—"
    least, most = map(show, entry.get(rounds_of_ratio(prefix, rival), (ratio, ratio)))
    return show(ratio) if least == most else f"{show(ratio)} ({least} to {most})"


def table(entries, names, columns, rivals, show=time_of):
    """`columns`, a column for each of `names`, and one for each ratio of a column of Tutti to one of `rivals`."""
    names = [n for n in names if any(n in e["time_us"] for e in entries)]
    ratios = {(prefix, r): f"{prefix}× {r}".replace("_", " ") for prefix in OURS.values() for r in rivals}
    ratios = {key: title for key, title in ratios.items() if any(ratio_of(*key) in e for e in entries)}
    if any("measured" in e for e in entries):
        columns = {**columns, MEASURED: lambda entry: entry["measured"]}
    titles = [*columns, *names, *ratios.values()]
    yield "| " + " | ".join(titles) + " |"
    yield "|" + "".join(" --- |" if title in TEXTS else " ---: |" for title in titles)
    for e in entries:
        cells = [value(e) for value in columns.values()]
        cells += [show(e, n) for n in names]
        cells += [show_ratio(e, prefix, rival) for prefix, rival in ratios]
        yield "| " + " | ".join(cells) + " |"


def ratios_to_others(entry, prefix, rivals):
    """The ratios of a column of Tutti to other libraries, of which an older build of Tutti is none."""
    return [entry[ratio_of(prefix, r)] for r in rivals if r != "before" and ratio_of(prefix, r) in entry]


def behind(entry, rivals):
    """Tutti's columns that are slower than the best of the other libraries: {column: its advantage, which is below 1}."""
    least = {own: min(ratios) for own, prefix in OURS.items() if (ratios := ratios_to_others(entry, prefix, rivals))}
    return {own: advantage for own, advantage in least.items() if advantage < 1}


def where_behind(title, entries, names, columns, rivals, show=time_of):
    if any("tutti" in e["time_us"] for e in entries):
        yield title + "\n"
        worst_first = sorted((e for e in entries if behind(e, rivals)), key=lambda e: min(behind(e, rivals).values()))
        if any("tutti-private" in e["time_us"] for e in entries):
            columns = {**columns, BEHIND: lambda entry: ", ".join(behind(entry, rivals))}
        compared = any(ratios_to_others(e, prefix, rivals) for e in entries for prefix in OURS.values())
        nothing = ["Nowhere." if compared else "No other library was measured."]
        yield from table(worst_first, names, columns, rivals, show) if worst_first else nothing


def of_versions(rows):
    """What a page says of the versions of a library, and of how many builds of Tutti there are by the rows' `program`."""
    versions = ", ".join(dict.fromkeys(" ".join(row["version"].split()) for row in rows))
    builds = len({row.get("program") for row in rows})
    return f"{versions} of {builds} builds" if builds > 1 else versions


def of_gloo(rows):
    """What a page says of gloo's times."""
    most = max(row["time_us"] / row.get("p50_us", row["time_us"]) for row in rows)
    return OF_GLOO + (f" gloo's means are up to {most:.0f} times its medians, because a few of its calls take far longer "
                      "than the others." if most >= 1.5 else "")


def of_memory(rows):
    """What a page says of the pages of memory on which buffers lay: rows of the other libraries tell."""
    asked = {row.get("large_pages", False) for row in rows if row["library"] != "tutti"}
    if asked == {True}:
        return LARGE_PAGES
    return SMALL_PAGES if asked == {False} else SOME_LARGE_PAGES if asked else ""


def incomplete(stopped):
    """What a page says first where the measurement was stopped."""
    return [f"**Incomplete**: the measurement was stopped ({stopped}).\n"] if stopped else []


def heading(result, what, settings, script, page):
    """`settings`: what a page says of how the libraries were set."""
    yield from incomplete(result["stopped"])
    yield f"{result['date']}, {result['machine']}. Means over the calls, medians of {result['rounds']} interleaved rounds, µs; f32, sum,"
    yield what
    yield f"Written by `bench/peers/{script}`; every row of every round, with p50, p99 and maximum, is in `{page}.json`.\n"
    yield idle.line([row.get("in_use") for row in result["rows"]]) + "\n"
    if any(ratio_of("", "") in key for entry in result["summary"] for key in entry):
        yield OF_RATIOS + "\n"
    yield " ".join(filter(None, (OF_TUTTI, settings, of_memory(result["rows"])))) + "\n"
    if "before" in result["versions"]:
        yield "`before` is an older build of `tutti`, `× before` the time of `before` / the time of `tutti`.\n"
    if "gloo" in result["versions"]:
        yield of_gloo([row for row in result["rows"] if row["name"] == "gloo"]) + "\n"
    yield "Versions: " + "; ".join(f"{n}: {v}" for n, v in result["versions"].items()) + ".\n"
    if any("program" not in row for row in result["rows"] if row.get("library") == "tutti"):
        yield UNKNOWN_BUILD


def earlier_result(file):
    """What PAGE.json holds, each row with the date and the machine, which old rows do not say but the whole file does.

    Ends the script where rows cannot be kept.
    """
    if not file.exists():
        return {"stopped": "", "rows": []}
    result = json.loads(file.read_text())
    old = sum("time_us" not in row for row in result["rows"])
    if old:
        raise SystemExit(f"--merge: {file}: {old} rows have medians (p50_us) and no time_us, and cannot stand beside means: "
                         "measure everything that the page is to have, without --merge")
    rows = [{**row, **{name: row.get(name, result[name]) for name in ("date", "machine")}} for row in result["rows"]]
    return {"stopped": result.get("stopped", ""), "rows": rows}


def need_earlier(options, names, *pages):
    """Ends the script before it measures the programs `names` where it could not keep the earlier rows of these pages.

    Rows of other programs could not stay beside those of now, because a ratio is one within a round.
    """
    if options.merge:
        for page in pages:
            file = options.out / f"{page}.json"
            left_out = missing(names, (row["name"] for row in earlier_result(file)["rows"]))
            if left_out and options.rounds > 0:
                raise SystemExit(f"--merge: {file} has rows of {', '.join(sorted(left_out))}: measure the same libraries, or "
                                 "without --merge")


def with_place(summary, rows, labels):
    """The entries, which say when and where they were measured if not all were on one day and one machine."""
    places = {cell_of(row, labels): (row["date"], row["machine"]) for row in rows}
    if len(set(places.values())) > 1:
        for entry in summary:
            date, machine = places[cell_of(entry, labels)]
            entry["measured"] = f"{date}, {short(machine)}"
    return summary


def result_of(options, page, rows, stopped, labels, rivals):
    """What PAGE.json is to hold: None where there are no rows.

    Rows that are merged into an incomplete page leave the page incomplete: nobody knows whether they are the missing ones.
    """
    if options.merge:
        earlier = earlier_result(options.out / f"{page}.json")
        rows = merged(earlier["rows"], rows, labels)
        stopped = stopped or earlier["stopped"]
    if not rows:
        return None
    names = dict.fromkeys(row["name"] for row in rows)
    return {"date": range_of(row["date"] for row in rows), "machine": "; ".join(dict.fromkeys(row["machine"] for row in rows)),
            "rounds": rounds_of(rows, labels), "stopped": stopped,
            "versions": {name: of_versions([row for row in rows if row["name"] == name]) for name in names},
            "summary": with_place(summarize(rows, labels, rivals), rows, labels), "rows": rows}


def write_page(folder, page, result, lines):
    """PAGE.json, a line for each row, and PAGE.md with the lines."""
    text = ["{"] + [f'"{k}": {json.dumps(v)},' for k, v in result.items() if k not in ("summary", "rows")]
    for key, end in (("summary", "],"), ("rows", "]\n}\n")):
        text += [f'"{key}": [', ",\n".join(json.dumps(entry) for entry in result[key]), end]
    (folder / f"{page}.json").write_text("\n".join(text))
    (folder / f"{page}.md").write_text("\n".join(lines).rstrip() + "\n")
    print((folder / f"{page}.md").read_text())


def plot(folder, page):
    """Draws PAGE.svg. Where it cannot be drawn none is left, because an earlier one would be of other rows than the page."""
    (folder / f"{page}.svg").unlink(missing_ok=True)
    if not PYTHON.exists():
        print(f"no plot: {PYTHON} is missing: run `.ci/install plots`", file=sys.stderr)
    elif subprocess.run([PYTHON, pathlib.Path(__file__).with_name("plot.py"), page, folder]).returncode:
        raise SystemExit(f"{page}.json and {page}.md are written, but {page}.svg could not be drawn")
