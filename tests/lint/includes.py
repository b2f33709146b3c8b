"""Who may include whom, as docs/architecture.md says it."""

import fnmatch
import re
import sys

import tree

ARCHITECTURE = "docs/architecture.md"
SECTION = "## Who may include whom"
FREE = ("tests", "bench")  # may include anything
SEPARATE = ("transports", "bindings")  # their subfolders include what lies beside them, but not one another
LAYERS = ("base", "memory", "kernels", "plan", "engine", "comm", "store", "sync")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def read_tables(text):
    """({folder: allowed names}, {header or prefix: folders}) from the two tables of the section."""
    section = text.split(SECTION, 1)[1].split("\n## ", 1)[0]
    tables, rows = [], None
    for line in section.splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")]
        if rows is None:
            rows = []
            tables.append(rows)
        elif cells[0]:
            rows.append(cells)
    if len(tables) != 2:
        raise ValueError(f"{ARCHITECTURE}: section '{SECTION}' has {len(tables)} tables; lint reads two")
    folders = {row[0][0]: row[1] for row in tables[0]}
    headers = {header: row[1] for row in tables[1] for header in row[0]}
    return folders, headers


def home(include):
    """The folder an include path points to, or None when it is not ours."""
    first, slash, _ = include.partition("/")
    if not slash:
        return None
    if include == "tutti/transport.h":
        return "transport.h"
    if first == "tutti":
        return "public"
    if first in LAYERS:
        return "src/" + first
    if first in ("algorithms", "transports", "bindings"):
        return include.rsplit("/", 1)[0]
    return None


def under(path, folder):
    return path == folder or path.startswith(folder + "/")


def violations_of(path, text, folders, headers):
    """One line for each include of `path` (a string) that the tables do not allow."""
    if path.split("/")[0] in FREE:
        return []
    rows = [folder for folder in folders if under(path, folder)]
    if not rows:
        return [f"{path}: its folder has no row in {ARCHITECTURE}"]
    row = max(rows, key=len)
    own = path.rsplit("/", 1)[0]
    found = []
    for include in INCLUDE.findall(text):
        target = home(include)
        if target is not None:
            allowed = list(folders[row]) + (["public"] if row == "include/tutti" else [])
            itself = under(target, "/".join(own.split("/")[:2]) if row in SEPARATE else row)
            itself = itself or target == row
            if not itself and not any(under(target, name) for name in allowed):
                found.append(f"{path}: includes {include}; {row} may include {' '.join(allowed)}")
            continue
        for header, places in headers.items():
            if include == header or (header.endswith("/") and include.startswith(header)):
                if not any(under(path, p) or fnmatch.fnmatch(path, p) for p in places):
                    found.append(f"{path}: includes {include}, which belongs to {' '.join(places)}")
    return found


def main():
    folders, headers = read_tables((tree.ROOT / ARCHITECTURE).read_text())
    found = []
    for path in tree.files():
        found += violations_of(str(path), (tree.ROOT / path).read_text(), folders, headers)
    return tree.report(found, "include rules")


if __name__ == "__main__":
    sys.exit(main())
