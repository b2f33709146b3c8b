"""Rules about single files: size, names, text, what a library must not do, and tests in the folder of what they test."""

import pathlib
import re
import sys

import tree

MAX_LINES = 600
FILLED_COLUMNS = 118  # of a comment; two less than clang-format lets pass
VAGUE = {"util", "utils", "helper", "helpers", "common", "misc"}
LIBRARY = ("include", "src", "algorithms", "transports")
# Folders of tests/ that mirror no folder of the tree, because their tests span layers.
SUITES = {"harness", "install", "lint", "sanitizers", "processes", "counts", "docs", "fuzz", "faults", "churn",
          "gpu", "devices"}
MIRRORED = ("src", ".", "algorithms", "bindings")
PRINTS = re.compile(r"\bstd::(cout|cerr|clog)\b|(?<![\w.:>])(std::)?(printf|puts|putchar)\s*\(")
ON_DEVICE = re.compile(r"TUTTI_HOST_DEVICE|__device__")
BITS = re.compile(r"\bstd::(bit_(?:floor|ceil|width)|count[lr]_(?:zero|one)|popcount|has_single_bit)\b")
COMMENT = re.compile(r"( *(?://|#) )(\S.*)")
NOT_PROSE = re.compile(r"[-*\d[]|//|.*[←=]")  # lists, headings, marks, code and formulas
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")


def size(path, text):
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{path}: {lines} lines; a file over {MAX_LINES} is two files"


def names(path, text):
    parts = pathlib.PurePosixPath(path)
    for word in {w for part in [*parts.parent.parts, parts.stem] for w in re.split(r"[_\-.]", part)} & VAGUE:
        yield f"{path}: '{word}' in a name says nothing; name what it does"


def text(path, text):
    if "\t" in text and not path.endswith("Makefile"):
        yield f"{path}: has a tab; indent with spaces"
    if text and not text.endswith("\n"):
        yield f"{path}: does not end with a newline"
    if UNFINISHED.search(text):
        yield f"{path}: '{UNFINISHED.search(text).group()}': finish it, or open an issue"


def filled(path, text):
    if pathlib.PurePosixPath(path).suffix not in tree.CODE:
        return
    lines = text.splitlines()
    for number, (line, below) in enumerate(zip(lines, lines[1:]), 1):
        first, second = COMMENT.fullmatch(line), COMMENT.fullmatch(below)
        if not first or not second or first[1] != second[1] or NOT_PROSE.match(first[2]) or NOT_PROSE.match(second[2]):
            continue
        if first[2][-1] not in ".:;" and len(line) + 1 + len(second[2].split()[0]) <= FILLED_COLUMNS:
            yield f"{path}:{number}: a comment goes on below, although the next word has room here"


def quiet(path, text):
    if path.split("/")[0] not in LIBRARY:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = PRINTS.search(line.split("//")[0])
        if match:
            yield f"{path}:{number}: {match.group().strip('( ')} in the library; return a status"


def on_device(path, text):
    if not ON_DEVICE.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if match := BITS.search(line.split("//")[0]):
            yield f"{path}:{number}: nvcc makes of {match.group()} code that gives wrong numbers; write a loop"


def mirrored(path, root):
    """tests/F/x_test.cc tests files of the folder F of src, algorithms, bindings or the top whose names share a word with x;
    conformance_test.cc and every_y_test.cc test all of F."""
    parts = pathlib.PurePosixPath(path)
    if parts.parts[0] != "tests" or not parts.name.endswith("_test.cc") or parts.parts[1] in SUITES:
        return
    folder = pathlib.PurePosixPath(*parts.parts[1:-1])
    stem = parts.stem.removesuffix("_test")
    places = [root / base / folder for base in MIRRORED]
    if not any(p.is_dir() for p in places):
        yield f"{path}: no folder {folder} in {', '.join(MIRRORED)} that it could mirror"
        return
    places = [p for p in [*places, root / "include/tutti"] if p.is_dir()]
    words = {"conformance", "every"} | {w for place in places for f in place.rglob("*") for w in f.stem.split("_")}
    if not words & set(stem.split("_")):
        yield f"{path}: no source file in {folder} shares a word with its name"


def violations_of(path, content, root=tree.ROOT):
    for rule in (size, names, text, filled, quiet, on_device):
        yield from rule(path, content)
    yield from mirrored(path, root)


def main():
    found = []
    for path in tree.files(suffixes=tree.CODE | tree.SCRIPTS):
        try:
            content = (tree.ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found.append(f"{path}: is not UTF-8")
            continue
        if path.name == "file_rules.py" or path.name == "lint_test.py":
            continue  # the file with these rules contains what they forbid
        found += violations_of(str(path), content)
    return tree.report(found, "file rules")


if __name__ == "__main__":
    sys.exit(main())
