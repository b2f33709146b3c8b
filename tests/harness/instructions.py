"""Compares the instructions that a program counts under callgrind (count_instructions.h) with checked-in figures.

    instructions.py PROGRAM FIGURES COMPILER [--write]

Instructions do not wobble as times do: a change of more than 2 % in either direction is an error, so that what a change
costs, or brings, is seen and written down; --write writes FIGURES anew. They are those of one compiler and its options,
and of AVX2, the best instruction set that valgrind knows; elsewhere the test is skipped.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
SKIPPED = 77
# Has memset and memcpy loop over vectors on every processor. On some these are one instruction, which valgrind counts once
# for each byte.
NO_STRINGS = "glibc.cpu.x86_rep_stosb_threshold=1073741824:glibc.cpu.x86_rep_movsb_threshold=1073741824"


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def count(program):
    """The instructions of the main thread for one unit of everything that the program counts."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out", program]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, GLIBC_TUNABLES=NO_STRINGS))
        if done.returncode == SKIPPED:
            skip(done.stdout.strip())
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        figures = {}
        for path in pathlib.Path(folder).iterdir():
            text = path.read_text()
            what = re.search(r"^desc: Trigger: Client Request: (\d+) (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if what and total and re.search("^thread: 1$", text, re.MULTILINE):
                figures[what[2]] = round(int(total[1]) / int(what[1]), 4)
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("figures", type=pathlib.Path)
    parser.add_argument("compiler", help="name, version and options of the compiler")
    parser.add_argument("--write", action="store_true", help="write the figures instead of comparing them")
    options = parser.parse_args()
    if not shutil.which("valgrind"):
        skip("there is no valgrind: run .ci/install")
    expected = json.loads(options.figures.read_text()) if options.figures.exists() else {"compiler": None}
    if not options.write and options.compiler != expected["compiler"]:
        skip(f"the figures are those of {expected['compiler']}, not of {options.compiler}")
    figures = count(options.program)
    if options.write:
        figures = {"compiler": options.compiler, "instructions": dict(sorted(figures.items()))}
        options.figures.write_text(json.dumps(figures, indent=1) + "\n")
        return
    wrong = []
    for name in sorted(figures.keys() | expected["instructions"].keys()):
        now, then = figures.get(name), expected["instructions"].get(name)
        if now is None or then is None or abs(now - then) > TOLERANCE * then:
            wrong.append(f"{name}: {now} instructions, {then} expected")
    if wrong:
        wrong.append(f"If that is wanted: python3 {sys.argv[0]} {options.program} {options.figures} '{options.compiler}' --write")
        sys.exit("\n".join(wrong))


main()
