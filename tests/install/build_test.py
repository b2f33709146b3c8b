#!/usr/bin/env python3
"""A build of Tutti's sources on machines that are unlike this one: what it would install, and what it says.

    build_test.py FOLDER COMPILER      (FOLDER is where builds are configured)
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER, COMPILER = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]


def configure(name, *options, **variables):
    """Configures the core and the command; returns the folder, and what CMake said."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DTUTTI_TORCH=OFF",
         "-DTUTTI_CUDA=OFF", "-DTUTTI_TESTS=OFF", "-DTUTTI_BENCH=OFF", *options],
        capture_output=True, text=True, env=os.environ | variables)
    return folder, made


class Build(unittest.TestCase):
    def test_the_installed_command_finds_libraries_where_the_build_found_them(self):
        """libhwy in a prefix of its own, as in /opt or in an environment of conda."""
        asked = subprocess.run(["pkg-config", "--libs-only-L", "--keep-system-libs", "libhwy"], capture_output=True,
                               text=True, check=True)
        libraries = pathlib.Path(asked.stdout.strip().removeprefix("-L"))
        # Outside of Tutti's tree, whose own folders CMake gives to nothing that is installed.
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        prefix = pathlib.Path(place.name)
        (prefix / "lib/pkgconfig").mkdir(parents=True)
        (prefix / "lib/libhwy.so").symlink_to(libraries / "libhwy.so")
        (prefix / "lib/pkgconfig/libhwy.pc").write_text(
            f"Name: libhwy\nDescription: Highway\nVersion: 1.0.3\nLibs: -L{prefix}/lib -lhwy\n", encoding="utf-8")
        folder, made = configure("own_libraries", PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn(f'NEW_RPATH "{prefix}/lib"', (folder / "cmake_install.cmake").read_text(encoding="utf-8"))

    def test_pip_installs_the_command(self):
        scripts = FOLDER / "scripts"
        folder, made = configure("by_pip", "-DSKBUILD=2", f"-DSKBUILD_SCRIPTS_DIR={scripts}")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn(f'DESTINATION "{scripts}" TYPE EXECUTABLE FILES "{folder}/bin/tutti"',
                      (folder / "cmake_install.cmake").read_text(encoding="utf-8"))
        self.assertFalse((folder / "docs").exists())  # the examples, whose libraries no wheel needs
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        self.assertRegex(project, 'build.targets = .*"tutti_command"')
        self.assertRegex(project, 'install.components = .*"command"')

    def test_headers_in_a_folder_of_another_name(self):
        for include, installed in (("include/mine", "${prefix}/include/mine"), ("/opt/headers", "/opt/headers")):
            folder, made = configure("own_include", f"-DCMAKE_INSTALL_INCLUDEDIR={include}",
                                     "-DCMAKE_INSTALL_LIBDIR=lib")
            self.assertEqual(made.returncode, 0, made.stderr)
            flags = (folder / "generated/tutti.pc").read_text(encoding="utf-8")
            self.assertIn(f"includedir={installed}\n", flags)
            self.assertIn("libdir=${prefix}/lib\n", flags)
            self.assertNotIn("-std", flags)  # a program of a newer standard keeps that standard
            targets, = folder.glob("CMakeFiles/Export/**/tuttiTargets.cmake")
            self.assertIn('INTERFACE_INCLUDE_DIRECTORIES "' + installed.replace("{prefix}", "{_IMPORT_PREFIX}") + '"',
                          targets.read_text(encoding="utf-8"))

    def test_libraries_in_a_folder_that_is_not_in_the_prefix(self):
        """And headers in the prefix, whose place then does not follow from that of tutti.pc."""
        folder, made = configure("own_libdir", "-DCMAKE_INSTALL_LIBDIR=/opt/x/lib", "-DCMAKE_INSTALL_PREFIX=/opt/tutti")
        self.assertEqual(made.returncode, 0, made.stderr)
        flags = (folder / "generated/tutti.pc").read_text(encoding="utf-8")
        for line in ("prefix=/opt/tutti", "libdir=/opt/x/lib", "includedir=${prefix}/include"):
            self.assertIn(f"{line}\n", flags)

    def test_an_nvcc_that_is_too_old_is_left_alone_where_none_is_asked_for(self):
        with tempfile.TemporaryDirectory() as place:
            nvcc = pathlib.Path(place) / "nvcc"
            # The second one is that of Ubuntu 24.04.
            for version, cuda in itertools.product(("11.8", "12.0"), ("AUTO", "ON")):
                nvcc.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {version}, V{version}.89\n",
                                encoding="utf-8")
                nvcc.chmod(0o755)
                _, made = configure("old_nvcc", f"-DTUTTI_CUDA={cuda}", f"-DCMAKE_CUDA_COMPILER={nvcc}")
                said = re.sub(r"\s+", " ", made.stdout + made.stderr)
                self.assertEqual(made.returncode == 0, cuda == "AUTO", said)
                self.assertIn("no nvcc of CUDA 12.1 or newer, whose kernels take more than 4 KB of parameters: "
                              f"{nvcc} is of CUDA {version}", said)
                self.assertEqual("Building without CUDA" in said, cuda == "AUTO", said)

    def test_without_ucx_no_test_has_ranks_that_are_processes(self):
        folder, made = configure("without_ucx", "-DTUTTI_UCX=OFF", "-DTUTTI_TESTS=ON", "-DTUTTI_TORCH=AUTO")
        self.assertEqual(made.returncode, 0, made.stderr)
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=folder, capture_output=True, text=True, check=True)
        commands = {test["name"]: test.get("command", []) for test in json.loads(listed.stdout)["tests"]}
        self.assertIn("examples/fault_injection", commands)
        self.assertEqual([name for name, command in commands.items() if "launch" in command], [])
        of_processes = re.compile("python/|install/extension|examples/(all_reduce|quickstart|train_distributed)")
        self.assertEqual([name for name in commands if of_processes.match(name)], [])

    def test_a_part_of_another_project_is_the_library_alone(self):
        folder = FOLDER / "subproject"
        shutil.rmtree(folder, ignore_errors=True)
        made = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT / "tests/install/subproject", "-B", folder,
                               f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DTUTTI_CUDA=OFF",
                               f"-DCMAKE_INSTALL_PREFIX={folder}/prefix"], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        rules = (folder / "build.ninja").read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"^build (\S+): CXX_\w+_LINKER__", rules, re.M)),
                         ["_deps/tutti-build/src/libtutti.a", "extended", "program"])
        subprocess.run(["cmake", "--install", folder], check=True, capture_output=True)
        installed = [path.relative_to(folder / "prefix") for path in (folder / "prefix").rglob("*") if path.is_file()]
        self.assertEqual([str(path) for path in installed], ["share/program.cc"])

    def test_a_header_that_is_missing(self):
        _, made = configure("no_asio", "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include")
        self.assertNotEqual(made.returncode, 0)
        self.assertRegex(made.stderr, r"Could not find TUTTI_ASIO using the following files:\s+asio\.hpp")


class Installer(unittest.TestCase):
    """.ci/install, with programs in place of the package manager's."""

    TOOLS = ("cat", "dirname", "env", "grep", "mkdir", "sed", "sh")

    def install(self, *groups, programs={}, **variables):
        """Runs .ci/install where PATH has TOOLS and `programs` (scripts by name); returns how that ended.

        Scripts append to $LOG, whose lines are self.log afterwards."""
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        folder = pathlib.Path(place.name)
        for name in self.TOOLS:
            (folder / name).symlink_to(shutil.which(name))
        for name, script in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (folder / name).chmod(0o755)
        release = folder / "os-release"
        release.write_text("VERSION_CODENAME=bookworm\n", encoding="utf-8")
        log = folder / "log"
        log.touch()
        ended = subprocess.run(["/bin/sh", ROOT / ".ci/install", *groups], capture_output=True, text=True, timeout=60,
                               env={"PATH": str(folder), "LOG": str(log), "TUTTI_OS_RELEASE": str(release), **variables})
        self.log = log.read_text(encoding="utf-8").splitlines()
        return ended

    def test_a_system_without_packages_of_debian(self):
        ended = self.install("core")
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, r"install by hand: g\+\+ cmake .*\n.*in place of make: '\.ci/install torch && "
                         "cmake --workflow --preset release'")

    def test_a_word_that_is_no_group_before_anything_is_installed(self):
        ended = self.install("core", "bogus")
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (
            2, "", "install: 'bogus' is none of: core torch python python-newest matrix plots bench docs\n"))

    def test_a_user_without_a_home(self):
        """Packages of the distribution need none."""
        ended = self.install("core", programs=self.ARCHITECTURES, OF_LIBSODIUM="amd64")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        python = {"dpkg": "echo amd64", "dpkg-query": "echo installed amd64"}
        ended = self.install("torch", programs=python)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("HOME: set HOME, or set TUTTI_DEPS to a folder for Python packages", ended.stderr)
        ended = self.install("torch", programs=python, HOME="/dev/null")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("set TUTTI_DEPS to a folder that can be made, for Python packages", ended.stderr)

    # Those of a machine where zlib1g-dev is installed for two architectures, and libsodium-dev for $OF_LIBSODIUM.
    ARCHITECTURES = {
        "dpkg": "echo amd64",
        "dpkg-query": """for package in "$@"; do :; done
case $package in
  zlib1g-dev) architectures="amd64 i386" ;;
  libsodium-dev) architectures=$OF_LIBSODIUM ;;
  libasio-dev) architectures=all ;;
  libclang-rt-99-dev) architectures= ;;
  *) architectures=amd64 ;;
esac
for architecture in $architectures; do
  printf "$(printf %s "$3" | sed "s/.{db:Status-Status}/installed/; s/.{Architecture}/$architecture/")"
done""",
        "clang": "echo clang version 99.0.1",  # beside the distribution's in /usr/bin
        "id": "echo 0",
        "apt-get": 'echo "$*" >>"$LOG"',
        "apt-cache": "exit 0",
    }

    # A machine where zlib1g-dev alone is missing.
    WITHOUT_ZLIB = ARCHITECTURES | {"dpkg-query": 'for package in "$@"; do :; done\n'
                                    '[ "$package" = zlib1g-dev ] || echo installed amd64'}
    LOCKED = """grep -c busy "$LOG" | grep -qx 2 && exit 0
echo busy >>"$LOG"
echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)" >&2
exit 100"""

    def test_waits_while_another_program_has_the_lock(self):
        programs = self.WITHOUT_ZLIB | {"sleep": 'echo "$@" s >>"$LOG"'}
        ended = self.install("core", programs=programs | {"apt-get": f'echo "$*" >>"$LOG"\n{self.LOCKED}'})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual([line.split()[-1] for line in self.log],
                         ["update", "busy", "s", "update", "busy", "s", "update", "zlib1g-dev"])
        self.assertEqual(ended.stderr.count("waits for the package manager: E: Could not get lock"), 1, ended.stderr)
        ended = self.install("core", programs=programs | {"apt-get": "echo E: no network >&2; exit 100"})
        self.assertEqual((ended.returncode, ended.stderr, self.log), (100, "E: no network\n", []))

    def test_sudo_is_told_of_the_proxies(self):
        """sudo empties the environment."""
        programs = self.WITHOUT_ZLIB | {"id": "echo 1000", "sudo": 'exec env -i PATH="$PATH" LOG="$LOG" "$@"',
                                        "apt-get": 'echo "$http_proxy $https_proxy" >>"$LOG"'}
        ended = self.install("core", programs=programs, http_proxy="http://a:1", https_proxy="http://b:2")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.log, ["http://a:1 http://b:2"] * 2)

    def test_root_is_asked_for_no_more_than_packages(self):
        """What make builds as root its user cannot write to afterwards."""
        ended = self.install("core", programs=self.WITHOUT_ZLIB | {"id": "echo 1000"})
        self.assertEqual((ended.returncode, self.log), (1, []))
        self.assertIn(f"needs root to install: zlib1g-dev. As root, run '{ROOT}/.ci/install core' once, or install sudo; "
                      "then go on as yourself.", ended.stderr)

    def test_another_release_gets_what_it_has(self):
        with tempfile.NamedTemporaryFile("w", suffix="os-release") as file:
            file.write('PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_CODENAME=trixie\n')
            file.flush()
            programs = self.ARCHITECTURES | {
                "dpkg-query": 'for package in "$@"; do :; done\ncase " $MISSING " in *" $package "*) ;; '
                              "*) echo installed amd64 ;; esac",
                "apt-cache": '[ "$2" != clang-format-14 ]', "ls": "echo $LISTS"}
            said = (r"and this is Debian GNU/Linux 13 \(trixie\)\. A build needs CMake 3\.25.*"
                    r"Not in this release, and left out: clang-format-14\.")
            for lists, before in (("a_Packages.lz4", []), ("", ["update"])):  # none in the image of a container
                ended = self.install("core", programs=programs, TUTTI_OS_RELEASE=file.name, LISTS=lists,
                                     MISSING="clang-format-14 zlib1g-dev")
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertRegex(ended.stderr, said)
                self.assertEqual([line.split()[-1] for line in self.log], [*before, "update", "zlib1g-dev"])
            ended = self.install("core", programs=programs | {"id": "echo 1000"}, TUTTI_OS_RELEASE=file.name,
                                 LISTS="a_Packages", MISSING="clang-format-14")
            self.assertEqual((ended.returncode, self.log), (0, []), ended.stderr)  # nothing that root could do
            self.assertRegex(ended.stderr, said)

    def test_packages_of_two_architectures_are_there(self):
        ended = self.install("core", programs=self.ARCHITECTURES, OF_LIBSODIUM="amd64")
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr, self.log), (0, "", "", []))
        ended = self.install("core", programs=self.ARCHITECTURES, OF_LIBSODIUM="arm64")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertRegex(self.log[-1], " install .* libsodium-dev$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
