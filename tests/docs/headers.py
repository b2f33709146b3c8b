#!/usr/bin/env python3
"""docs/headers.md lists every public header with the first sentence of its first comment.

    tests/docs/headers.py [--fix]      (--fix writes the page)
"""

import re
import sys

from generated import ROOT, settle

FOLDERS = {"Core": "include/tutti", "With libtorch": "bindings/torch/include/tutti/torch"}
ABOUT = """# Public headers

The comments of these headers are the reference of the library in C++: of every function what it takes, how it ends, and
which thread may call it. The tables have the first sentence of each header. A test compares the tables with the headers.
"""


def first_sentence(header):
    comment = re.match(r"(?:// ?.*\n)+", header.read_text(encoding="utf-8"))
    if not comment:
        raise SystemExit(f"{header} does not begin with a comment that says what the header is for")
    paragraph = re.sub(r"^// ?", "", comment[0], flags=re.M).split("\n\n")[0]
    sentence = re.split(r"(?<=\.) ", " ".join(paragraph.split()))[0]
    return re.sub(r"\W$", ".", sentence).replace("|", r"\|")


def page():
    lines = [ABOUT]
    for title, folder in FOLDERS.items():
        lines += [f"## {title}", "", "| header | what is in it |", "|---|---|"]
        headers = sorted(header.relative_to(ROOT / folder) for header in (ROOT / folder).rglob("*.h"))
        lines += [f"| [`{header}`](../{folder}/{header}) | {first_sentence(ROOT / folder / header)} |" for header in headers]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(settle("headers", page(), "--fix" in sys.argv[1:]))
