"""clang-format 14 over all C++: `format.py` reports what is not formatted, `format.py --fix` formats it."""

import re
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
    return tree.report([f"{p}: not formatted; run `make format`" for p in unformatted(paths)], "format")


def unformatted(paths, root=tree.ROOT):
    """Those of `paths` that clang-format would change."""
    command = [FORMATTER, "--style=file", "--dry-run", "--ferror-limit=1", *map(str, paths)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=root).stderr if paths else ""
    return sorted(set(re.findall(r"^(.+?):\d+:\d+: warning: code should be clang-formatted", said, re.M)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
