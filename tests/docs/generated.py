#!/usr/bin/env python3
"""A page that the library prints is what is printed.

    tests/docs/generated.py TUTTI PAGE [--fix]      (TUTTI: the command; --fix writes docs/PAGE.md)

`tutti docs PAGE` prints the page.
"""

import difflib
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def settle(name, printed, fix):
    """Compares docs/NAME.md with what it must be, or writes it; returns the exit status."""
    page = ROOT / "docs" / f"{name}.md"
    if fix:
        page.write_text(printed, encoding="utf-8")
    kept = page.read_text(encoding="utf-8") if page.exists() else ""
    if kept == printed:
        return 0
    print("\n".join(difflib.unified_diff(kept.splitlines(), printed.splitlines(), str(page), "printed", lineterm="")))
    print(f"docs/{name}.md is out of date: cmake --build BUILD_DIR --target regenerate")
    return 1


def main():
    command, name = sys.argv[1:3]
    printed = subprocess.run([command, "docs", name], check=True, capture_output=True, text=True).stdout
    return settle(name, printed, "--fix" in sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
