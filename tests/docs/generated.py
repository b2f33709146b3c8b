#!/usr/bin/env python3
"""Pages that the library prints, and outputs of commands that pages show, are what is printed.

    tests/docs/generated.py TUTTI PAGE [--fix]      (TUTTI: the command; --fix writes docs/PAGE.md)

A page is printed as a whole by `tutti docs PAGE`, or shows outputs, each in a block after a line with its command:

    <!-- output: tutti advise --link 1G --ranks 8 --parameters 20M --step-ms 50 -->
"""

import difflib
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUTPUT = re.compile(r"(<!-- output: tutti ([^>\n]+) -->\n```text\n)(.*?)(^```$)", re.S | re.M)


def output(command, words):
    return subprocess.run([command, *words], check=True, capture_output=True, text=True).stdout


def main():
    command, name = sys.argv[1:3]
    page = ROOT / "docs" / f"{name}.md"
    kept = page.read_text(encoding="utf-8") if page.exists() else ""
    if OUTPUT.search(kept):
        printed = OUTPUT.sub(lambda block: block[1] + output(command, shlex.split(block[2])) + block[4], kept)
    else:
        printed = output(command, ["docs", name])
    if "--fix" in sys.argv[3:]:
        page.write_text(printed, encoding="utf-8")
        return 0
    if kept == printed:
        return 0
    print("\n".join(difflib.unified_diff(kept.splitlines(), printed.splitlines(), str(page), "printed", lineterm="")))
    print(f"docs/{name}.md is out of date: cmake --build BUILD_DIR --target regenerate")
    return 1


if __name__ == "__main__":
    sys.exit(main())
