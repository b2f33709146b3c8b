"""Code in the docs is code that is built. `doc_code.py --fix` writes it into the pages.

A block of C++, CMake, Python or diff follows a line that says where it is from, and a block of another language may:

    <!-- file: docs/examples/all_reduce.cc -->                  the whole file
    <!-- file: docs/examples/all_reduce.cc region: sum -->      the lines between two lines `// [sum]` (or `# [sum]`)
    <!-- diff: docs/examples/a.cc docs/examples/b.cc -->        what differs between two files
"""

import difflib
import pathlib
import re
import sys

import tree

CODE = ("cpp", "cc", "c", "cmake", "python", "diff")
BLOCK = re.compile(r"(?:<!-- (?P<source>(?:file|diff): [^>\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.S | re.M)
FILE = re.compile(r"file: (?P<file>\S+)(?: region: (?P<region>\w+))?")
DIFF = re.compile(r"diff: (?P<before>\S+) (?P<after>\S+)")


def is_mark(line, name=r"\w+"):
    return re.fullmatch(rf"\s*(//|#) \[{name}\]", line) is not None


def lines_of(name, root):
    if not (root / name).is_file():
        raise ValueError(f"{name} does not exist")
    return (root / name).read_text(encoding="utf-8").splitlines()


def region(name, mark, root):
    lines = lines_of(name, root)
    marks = [i for i, line in enumerate(lines) if is_mark(line, mark)]
    if len(marks) != 2:
        raise ValueError(f"{name} has {len(marks)} lines [{mark}], not two")
    inside = lines[marks[0] + 1:marks[1]]
    indent = min((len(line) - len(line.lstrip()) for line in inside if line.strip()), default=0)
    return [line[indent:] for line in inside]


def code_of(source, root):
    """What a block must hold; ValueError says why that is unknown."""
    file, diff = FILE.fullmatch(source), DIFF.fullmatch(source)
    if file and file["region"]:
        lines = region(file["file"], file["region"], root)
    elif file:
        lines = lines_of(file["file"], root)
    elif diff:
        both = ([line for line in lines_of(diff[side], root) if not is_mark(line)] for side in ("before", "after"))
        names = (pathlib.PurePosixPath(diff[side]).name for side in ("before", "after"))
        lines = list(difflib.unified_diff(*both, *names, lineterm="", n=1))
    else:
        raise ValueError(f"'{source}' is neither file: FILE, file: FILE region: NAME nor diff: FILE FILE")
    return "".join(line + "\n" for line in lines if not is_mark(line))


def check(path, text, root):
    """What is wrong with a page, and its text with the code that belongs there."""
    found = []

    def mend(match):
        if match["source"] is None and match["language"] not in CODE:
            return match[0]
        if match["source"] is None:
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: a block of {match['language']} without <!-- file: … --> before it")
            return match[0]
        try:
            code = code_of(match["source"], root)
        except ValueError as error:
            found.append(f"{path}: {error}")
            return match[0]
        if code != match["code"]:
            found.append(f"{path}: the code differs from {match['source']}; run tests/lint/doc_code.py --fix")
        start, end = match.start("code") - match.start(), match.end("code") - match.start()
        return match[0][:start] + code + match[0][end:]

    return found, BLOCK.sub(mend, text)


def violations(path, text, root):
    return check(path, text, root)[0]


def main():
    found = []
    for path in tree.files(suffixes={".md"}):
        page = tree.ROOT / path
        problems, mended = check(path, page.read_text(encoding="utf-8"), tree.ROOT)
        if "--fix" in sys.argv[1:]:
            page.write_text(mended, encoding="utf-8")
            problems = violations(path, mended, tree.ROOT)
        found += problems
    return tree.report(found, "code in docs")


if __name__ == "__main__":
    sys.exit(main())
