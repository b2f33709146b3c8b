"""clang-tidy over the library's and the command's sources, by two processes: tidy.py BUILD_DIRECTORY.

The headers take most of a source's time, so clang-tidy reads several sources together: as a unit, a source that
includes them. When clang-tidy says something of a unit, the halves of the unit are looked at, and in the end a source
alone, so what is printed is true of a source alone. A unit hides what one of its sources makes right for another: an
include that the other lacks, a use or definition of what the other only declares
(bugprone-forward-declaration-namespace), a use of a bad name by a macro (readability-identifier-naming).

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
import shlex
import shutil
import subprocess
import sys

import tree

TIDY = "clang-tidy"
CONFIG = tree.ROOT / ".clang-tidy"
FOLDERS = ("src/", "algorithms/", "transports/", "bindings/cli/")
# clang-tidy parses with g++'s command line: options that clang does not know are no findings.
EXTRA = ["-Wno-unknown-warning-option", "-Wno-unused-command-line-argument"]
# g++'s precompiled headers, which clang cannot read: the sources are looked at with what they themselves include.
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S+cmake_pch\.hxx")
INCLUDE = re.compile(r'^#include [<"].*', re.M)
QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
FINDING = re.compile(r"^.+:\d+:\d+: (?:error|warning): .+", re.M)

MOST_TOGETHER = 20  # sources of a unit, which takes about twice the time of a source alone
# A source with macros would change the sources after it; headers of the kernel define anew what the C library's define.
ALONE = re.compile(r"^\s*#\s*(?:define\b|undef\b|pragma\b|include\s*<linux/)", re.M)
ANONYMOUS = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
NAME = re.compile(r"\b([A-Za-z_]\w*)(?=\(| \{| = |;|\[| : )")
# The function of this name that each schedule has in its anonymous namespace.
BUILD = re.compile(r"^void Build\(", re.M)


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


def fingerprint(path, flags, build):
    seen = set()
    dependencies(path, seen)
    digest = hashlib.sha256()
    options = " ".join(flags).replace(str(build), "BUILD").replace(str(tree.ROOT), "ROOT")
    for text in [version(), options, CONFIG.read_text()]:
        digest.update(text.encode() + b"\0")
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + (tree.ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest()


def flags_of(command):
    """The flags in a command of CMake's: COMPILER FLAG... -o OBJECT -c SOURCE."""
    words = shlex.split(PRECOMPILED.sub("", command))
    return (*words[1 : words.index("-o")], *EXTRA)


def sources_of(entry):
    """The sources that an entry of compile_commands.json compiles: several where CMake's unity builds include them."""
    source = pathlib.Path(entry["directory"], entry["file"])
    paths = QUOTED.findall(source.read_text()) if source.parent.name == "Unity" else [source]
    return [os.path.relpath(path, tree.ROOT) for path in paths]


def own_names(text):
    """The names that `text` declares in anonymous namespaces, and some other words of these lines."""
    lines = [line for body in ANONYMOUS.findall(text) for line in body.splitlines() if line[:1].isalpha()]
    return {name for line in lines for name in NAME.findall(line)} - {"Build"}


def units_of(paths):
    """Divides `paths`, whose flags are the same, into units: lists of sources that can be looked at together.

    Sources of a unit have no own name in common. Where they cannot be compiled together all the same, halves can.
    """
    alone, units = [], []
    for path in paths:
        text = (tree.ROOT / path).read_text()
        if ALONE.search(text):
            alone.append([path])
            continue
        names = own_names(text)
        for unit, taken in units:
            if len(unit) < MOST_TOGETHER and not names & taken:
                break
        else:
            unit, taken = [], set()
            units.append((unit, taken))
        unit.append(path)
        taken.update(names)
    return alone + [unit for unit, _ in units]


def text_of(unit):
    """The source that includes the sources of `unit`."""
    lines = []
    for number, path in enumerate(unit):
        text = (tree.ROOT / path).read_text()
        include = f'#include "{tree.ROOT / path}"'
        if BUILD.search(text):  # The headers come first, because some have a Build, too.
            lines += [*INCLUDE.findall(text), f"#define Build Build{number}", include, "#undef Build"]
        else:
            lines.append(include)
    return "\n".join(lines) + "\n"


def check(unit, flags, folder):
    """What clang-tidy says of the sources of `unit`: empty when nothing. `folder` gets a source that includes them."""
    source = tree.ROOT / unit[0]
    if len(unit) > 1:
        source = folder / f"{unit[0].replace('/', '_').removesuffix('.cc')}_and_{len(unit) - 1}_more.cc"
        source.write_text(text_of(unit))
    command = [TIDY, "--quiet", f"--config-file={CONFIG}", str(source), "--", *flags]
    run = subprocess.run(command, capture_output=True, text=True)
    return run.stdout + run.stderr if run.returncode else ""


def passing(unit, flags, folder, printed):
    """The sources of `unit` that pass; prints what is found in the others. `printed` has what has been printed.

    What is found in a header is printed once: a unit in which nothing else is found does not pass as a whole.
    """
    output = check(unit, flags, folder)
    if not output:
        return unit
    findings = set(FINDING.findall(output))
    if findings and findings <= printed:
        return []
    if len(unit) == 1:
        print(output, flush=True)
        printed |= findings
        return []
    middle = len(unit) // 2
    return [path for half in (unit[:middle], unit[middle:]) for path in passing(half, flags, folder, printed)]


def main(build):
    if not shutil.which(TIDY):
        print(f"{TIDY} is not installed: run .ci/install")
        return 1
    build = pathlib.Path(build).resolve()
    passed = pathlib.Path(os.environ.get("TUTTI_DEPS") or pathlib.Path.home() / ".cache/tutti") / "tidy"
    passed.mkdir(parents=True, exist_ok=True)
    todo = {}  # by flags: the sources, and the file that remembers that a source passed
    for entry in json.loads((build / "compile_commands.json").read_text()):
        for path in sources_of(entry):
            if path.startswith(FOLDERS) and path.endswith(".cc"):  # clang-tidy does not know nvcc's options
                flags = flags_of(entry["command"])
                stamp = passed / fingerprint(path, flags, build)
                if not stamp.exists():
                    todo.setdefault(flags, {})[path] = stamp
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    printed = set()
    passes = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        looks = [(flags, pool.submit(passing, unit, flags, folder, printed))
                 for flags, stamps in todo.items() for unit in units_of(stamps)]
        for flags, look in looks:
            for path in look.result():
                todo[flags][path].touch()
            passes += len(look.result())
    looked_at = sum(map(len, todo.values()))
    print(f"tidy: {looked_at} source(s) looked at, {passes} passed")
    return 1 if passes < looked_at else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
