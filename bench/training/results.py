"""Writes the measurements of the programs of this folder as NAME.md and NAME.json."""

import json
import pathlib

from runs import ROOT
import idle


def add_options(parser):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results", help="where results go")
    parser.add_argument("--any-program", action="store_true",
                        help="take runs of the file that another build has made, too, or nobody knows which")
    idle.add_loaded(parser)


def measured(runs):
    """When and where runs were measured, some of them perhaps long ago: the range of what their rows say."""
    dates = sorted(run["date"] for run in runs if "date" in run)
    text = dates[0] if dates and dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}" if dates else ""
    if unknown := len(runs) - len(dates):
        text += f"{' and ' * bool(dates)}{unknown} runs on a day and a machine that are not known"
    machines = dict.fromkeys(run["machine"] for run in runs if "machine" in run)
    programs = {run["program"] for run in runs if "program" in run}
    if len(programs) > 1:
        text += f", by {len(programs)} builds of the program"
    return ", ".join([text, "; ".join(machines)] if machines else [text])


def beside(runs):
    """What other programs used while the runs were measured."""
    return idle.line([run.get("in_use") for run in runs])


def line(cells):
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def write(out, name, lines, rows):
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(text)
