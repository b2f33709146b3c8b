"""Writes the measurements of the programs of this folder as NAME.md and NAME.json."""

import datetime
import json
import os
import pathlib
import platform

from runs import ROOT


def add_places(parser):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results", help="where results go")


def machine():
    """The date and the machine of a measurement."""
    return f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def line(cells):
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def write(out, name, lines, rows):
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    (out / f"{name}.md").write_text(text)
    (out / f"{name}.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(text)
