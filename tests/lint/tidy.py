"""clang-tidy over the library's and the command's sources, two at a time: tidy.py BUILD_DIRECTORY.

A source that passed is remembered by a hash of all it depends on (its text, our headers it includes, its flags,
.clang-tidy), so only what changed is looked at again.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tree

TIDY = "clang-tidy"
FOLDERS = ("src/", "algorithms/", "transports/", "bindings/cli/")
# clang-tidy parses with g++'s command line: options that clang does not know are no findings.
EXTRA = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-unused-command-line-argument"]
# g++'s precompiled headers, which clang cannot read: a source is looked at with what the source itself includes.
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S+cmake_pch\.hxx")
QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def dependencies(path, seen):
    """Adds to `seen` our files that `path` (relative) includes, and theirs."""
    if path in seen:
        return
    seen.add(path)
    for include in QUOTED.findall((tree.ROOT / path).read_text()):
        for folder in ("include", "src", "."):
            if (tree.ROOT / folder / include).is_file():
                dependencies(os.path.normpath(f"{folder}/{include}"), seen)
                break


@functools.cache
def version():
    return subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout


def fingerprint(path, command, build):
    seen = set()
    dependencies(path, seen)
    digest = hashlib.sha256()
    flags = command.replace(str(build), "BUILD").replace(str(tree.ROOT), "ROOT")
    for text in [version(), flags, (tree.ROOT / ".clang-tidy").read_text(), *EXTRA]:
        digest.update(text.encode() + b"\0")
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + (tree.ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest()


def check(path, commands):
    """What clang-tidy says of `path`, compiled as the folder `commands` says: empty when nothing."""
    command = [TIDY, "--quiet", f"-p={commands}", *EXTRA, str(tree.ROOT / path)]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.stdout + run.stderr if run.returncode else ""


def main(build):
    if not shutil.which(TIDY):
        print(f"{TIDY} is not installed: run .ci/install")
        return 1
    build = pathlib.Path(build).resolve()
    passed = pathlib.Path(os.environ.get("TUTTI_DEPS") or pathlib.Path.home() / ".cache/tutti") / "tidy"
    passed.mkdir(parents=True, exist_ok=True)
    todo = {}
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        entry["command"] = PRECOMPILED.sub("", entry["command"])
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), tree.ROOT)
        if path.startswith(FOLDERS) and path.endswith(".cc"):  # clang-tidy does not know nvcc's options
            stamp = passed / fingerprint(path, entry["command"], build)
            if not stamp.exists():
                todo[path] = stamp
    commands = build / "tidy"
    commands.mkdir(exist_ok=True)
    (commands / "compile_commands.json").write_text(json.dumps(entries))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for path, output in zip(todo, pool.map(lambda p: check(p, commands), todo)):
            if output:
                failed += 1
                print(output)
            else:
                todo[path].touch()
    print(f"tidy: {len(todo)} source(s) looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
