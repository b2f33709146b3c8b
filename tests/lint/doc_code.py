"""Code in the docs is the code that is built: a block after `<!-- file: PATH -->` equals that file."""

import re
import sys

import tree

BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)


def violations(path, text, root):
    for name, code in BLOCK.findall(text):
        source = root / name
        if not source.is_file():
            yield f"{path}: {name} does not exist"
        elif source.read_text(encoding="utf-8") != code:
            yield f"{path}: the code of {name} differs from the file; copy the file into the page"


def main():
    found = []
    for path in tree.files(suffixes={".md"}):
        found += violations(path, (tree.ROOT / path).read_text(encoding="utf-8"), tree.ROOT)
    return tree.report(found, "code in docs")


if __name__ == "__main__":
    sys.exit(main())
