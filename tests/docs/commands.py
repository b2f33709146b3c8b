#!/usr/bin/env python3
"""The commands of a page print and draw what the page and its pictures show.

    tests/docs/commands.py TUTTI PAGE [--fix]      (TUTTI: the command; --fix writes docs/PAGE.md and its pictures)

A command is an indented line that begins with `$ tutti`; the indented lines below it, up to the next command or an empty
line with which the block of code ends, are what it prints. A picture in docs/plans that a command draws is one that the
page shows.
"""

import difflib
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^    \$ tutti (?P<arguments>.*)\n(?P<printed>(?:    (?!\$ ).*\n|\n+(?=    (?!\$ )))*)", re.M)


def differences(kept, made, name):
    return list(difflib.unified_diff(kept.splitlines(), made.splitlines(), name, "made", lineterm=""))


def main():
    tutti = pathlib.Path(sys.argv[1]).resolve()
    name = f"docs/{sys.argv[2]}.md"
    fix = "--fix" in sys.argv[3:]
    page = (ROOT / name).read_text(encoding="utf-8")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        drawings = pathlib.Path(folder) / "docs" / "plans"
        drawings.mkdir(parents=True)

        def run(match):
            ran = subprocess.run([tutti, *shlex.split(match["arguments"])], capture_output=True, text=True,
                                 cwd=folder)
            if ran.returncode != 0 or ran.stderr:
                wrong.append(f"tutti {match['arguments']} ended with {ran.returncode}: {ran.stderr}")
            lines = "".join(f"    {line}".rstrip() + "\n" for line in ran.stdout.rstrip().splitlines())
            return f"    $ tutti {match['arguments']}\n{lines}"

        made = COMMAND.sub(run, page)
        shown = set(re.findall(r"\]\((plans/\S+\.svg)\)", page))
        drawn = {f"plans/{path.name}" for path in drawings.iterdir()}
        wrong += [f"{name} shows {picture}, which no command draws" for picture in sorted(shown - drawn)]
        wrong += [f"{name} does not show {picture}, which a command draws" for picture in sorted(drawn - shown)]
        for picture in sorted(shown & drawn):
            drawing = (drawings.parent / picture).read_text(encoding="utf-8")
            kept = ROOT / "docs" / picture
            if fix:
                kept.write_text(drawing, encoding="utf-8")
            wrong += differences(kept.read_text(encoding="utf-8") if kept.exists() else "", drawing, picture)[:20]
    if fix:
        (ROOT / name).write_text(made, encoding="utf-8")
    else:
        wrong += differences(page, made, name)
    print("\n".join(wrong))
    if wrong:
        print(f"{name} or its pictures are out of date: cmake --build BUILD_DIR --target regenerate")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
