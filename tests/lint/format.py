"""clang-format 14 over all C++: `format.py` reports what is not formatted, `format.py --fix` formats it."""

import shutil
import subprocess
import sys

import tree

FORMATTER = "clang-format-14"  # other versions break lines elsewhere


def main(arguments):
    if not shutil.which(FORMATTER):
        print(f"{FORMATTER} is not installed: run .ci/install")
        return 1
    paths = [str(p) for p in tree.files()]
    if "--fix" in arguments:
        return subprocess.run([FORMATTER, "--style=file", "-i", *paths], cwd=tree.ROOT).returncode if paths else 0
    return tree.report([f"{p}: not formatted; run `make format`" for p in paths if not formatted(p)], "format")


def formatted(path, text=None):
    """Whether `path`, or `text` as if it were there, is what clang-format would write."""
    text = (tree.ROOT / path).read_text() if text is None else text
    command = [FORMATTER, "--style=file", f"--assume-filename={path}"]
    return subprocess.run(command, input=text, capture_output=True, text=True, cwd=tree.ROOT, check=True).stdout == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
