"""The files of the checkout that lint looks at."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = {".cc", ".h", ".cu"}
SCRIPTS = {".py", ".sh", ".cmake"}


def files(root=ROOT, suffixes=frozenset(CODE)):
    """Paths relative to `root`, sorted: what git tracks, and what it would track."""
    git = ["git", "-c", f"safe.directory={root}", "-C", str(root)]
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.split("\0")
    else:  # a source archive has no .git
        names = [str(p.relative_to(root)) for p in root.rglob("*") if "build" not in p.relative_to(root).parts[:1]]
    paths = {pathlib.PurePosixPath(n) for n in names if n}
    return sorted(p for p in paths if (p.suffix in suffixes or not suffixes) and (root / p).is_file())


def report(violations, what):
    """Prints violations; returns the exit status."""
    for violation in violations:
        print(violation)
    print(f"{what}: {len(violations)} violation(s)")
    return 1 if violations else 0
