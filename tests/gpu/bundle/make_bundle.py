#!/usr/bin/env python3
"""Makes the bundle: a folder with programs and scripts that check and measure Tutti on a machine that has a GPU and its
driver, a Python 3 and NCCL, but no compiler and no network.

    tests/gpu/bundle/make_bundle.py BUILD_DIRECTORY FOLDER [--with PROGRAM]…

On that machine: FOLDER/gpu_suite, FOLDER/gpu_bench. --with adds a program.
"""

import argparse
import json
import pathlib
import re
import shutil
import stat
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MOST_BYTES = 60 << 20
PROGRAMS = ("gpu_kernels", "gpu_ranks", "gpu_bench")
ENTRIES = ("gpu_suite", "gpu_bench")
MODULES = ("legs.py", "machine.py", "shaped.py")
# The C library belongs to the machine; so does, where it will do, the C++ library, which is kept apart.
OF_THE_SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv))\.so")
OF_TORCH = re.compile(r"^lib(torch|c10)")  # which are in the process before the extension module
OF_CXX = re.compile(r"^lib(stdc\+\+|gcc_s)\.so")
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")


def libraries_of(program):
    """{name: path} of all shared libraries that a program or library needs."""
    text = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    if missing := [name for name in re.findall(r"(\S+) => not found", text) if not OF_TORCH.match(name)]:
        sys.exit(f"make_bundle: {program} needs {', '.join(missing)}, which is not on this machine")
    return dict(re.findall(r"(\S+) => (/\S+)", text))


def find_library(name):
    text = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^\s*{re.escape(name)} .*=> (\S+)$", text, re.M)
    return pathlib.Path(found.group(1)) if found else None


def add(source, target, strip=True):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(pathlib.Path(source).resolve(), target)
    target.chmod(target.stat().st_mode | stat.S_IWUSR)
    if strip:
        subprocess.run(["strip", target], check=True)


def add_ucx(libraries):
    """UCX, which Tutti loads late, with what it loads itself for shared memory between processes. Returns its libraries."""
    ucp = find_library("libucp.so.0")
    if ucp is None:
        sys.exit("make_bundle: there is no libucp.so.0, without which ranks in processes cannot meet")
    needed = {ucp.name: str(ucp), **libraries_of(ucp)}
    for module in sorted(ucp.resolve().parent.glob("ucx/libuct_cma.so.0")):
        add(module, libraries / "ucx" / module.name)
        shutil.copy(libraries / "ucx" / module.name, libraries / "ucx" / "libuct_cma.so")
        needed |= libraries_of(module)
    return needed


def find_module(build):
    """The Python package's extension module for the bundle (package.cmake); None where it is not built."""
    return next((build / "bundled_python" / "tutti").glob("_C.*.so"), None)


def add_package(build, module, folder):
    """The Python package, and the tests of it that run on a real GPU."""
    package = folder / "python" / "tutti"
    shutil.copytree(ROOT / "bindings" / "python" / "tutti", package, ignore=shutil.ignore_patterns("__pycache__"))
    add(build / "python" / "tutti" / "_version.py", package / "_version.py", strip=False)
    add(module, package / module.name)
    tests = ROOT / "tests" / "python"
    for script in [*(HERE.parent / "torch").glob("*.py"), *(tests / "gpu").glob("*_test.py"),
                   *(tests / name for name in ("ranks.py", "lightning_model.py"))]:
        add(script, folder / "torch" / script.name, strip=False)


def check_libraries(binary, folder):
    """Ends with an error where a program or module takes a library of this machine instead of the bundle's."""
    for name, path in libraries_of(binary).items():
        belongs_elsewhere = OF_THE_SYSTEM.match(name) or OF_CXX.match(name)
        if not belongs_elsewhere and folder.resolve() not in pathlib.Path(path).resolve().parents:
            sys.exit(f"make_bundle: {binary} takes {path} instead of the {name} in {folder}: link it with an RPATH to that")


def glibc_needed(folder):
    """The oldest C library with which everything in the folder runs but the C++ library, "2.34"."""
    newest = (0, 0)
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "cxx":
            newest = max([newest, *(tuple(map(int, version)) for version in GLIBC.findall(
                subprocess.run(["objdump", "-T", path], capture_output=True, text=True).stdout))])
    return ".".join(map(str, newest))


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                          text=True)
    return done.stdout.strip() or "unknown"


def make(build, folder, more):
    if folder.exists():
        if not (folder / "bundle.json").exists():
            sys.exit(f"make_bundle: {folder} is there, and is no bundle")
        shutil.rmtree(folder)
    binaries = folder / "bin"
    libraries = binaries / "libraries"
    needed = {}
    for program in [*(build / "bin" / name for name in PROGRAMS), *more]:
        add(program, binaries / program.name)
        needed |= libraries_of(program)
    needed |= add_ucx(libraries)
    if tc := shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin:/bin"):
        add(tc, binaries / "tc")
        needed |= libraries_of(tc)
    for name, path in sorted(needed.items()):
        if not OF_THE_SYSTEM.match(name):
            add(path, (binaries / "cxx" if OF_CXX.match(name) else libraries) / name)
    for name in ENTRIES:
        add(HERE / f"{name}.py", folder / name, strip=False)
        (folder / name).chmod(0o755)
    for name in MODULES:
        add(HERE / name, folder / name, strip=False)
    if module := find_module(build):
        needed |= libraries_of(module)
        add_package(build, module, folder)
    for binary in [*(binaries / name for name in PROGRAMS), *(folder / "python").rglob("*.so")]:
        check_libraries(binary, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    about = {"commit": commit(), "bytes": size, "c_library": glibc_needed(binaries)}
    (folder / "bundle.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--with", dest="more", action="append", type=pathlib.Path, default=[])
    asked = arguments.parse_args()
    about = make(asked.build, asked.folder, asked.more)
    print(f"{asked.folder}: {about['bytes'] / (1 << 20):.1f} MB of commit {about['commit']}, for glibc {about['c_library']} "
          "or newer")
    if about["bytes"] > MOST_BYTES:
        sys.exit(f"make_bundle: that is more than {MOST_BYTES >> 20} MB")


if __name__ == "__main__":
    main()
