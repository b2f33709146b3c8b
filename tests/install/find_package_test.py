#!/usr/bin/env python3
"""What find_package(tutti) of an installed Tutti says where something is missing.

    find_package_test.py PREFIX FOLDER COMPILER TORCH

FOLDER is where projects are made, and TORCH the libtorch that PREFIX was built with, or empty.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PREFIX, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
COMPILER, TORCH = sys.argv[3], sys.argv[4]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "TUTTI_TORCH_DIR"}
ENVIRONMENT |= {"CXX": COMPILER, "HOME": str(FOLDER)}  # an installed Tutti looks for nothing where its build looked
# What an error of an installed Tutti must not speak of.
TREE = re.compile(r"\.ci/|[Mm]akefile|\bmake [a-z]|preset|TUTTI_DEPS|\.cache|bindings/|src/")


class FindPackage(unittest.TestCase):
    def configure(self, cmake, *options, prefix=PREFIX, again=False, **variables):
        """What CMake says of a project with `cmake`, in a new folder or `again`."""
        folder = FOLDER / self.id().rsplit(".", 1)[-1]
        if not again:
            shutil.rmtree(folder / "build", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n{cmake}\n", encoding="utf-8")
        return subprocess.run(
            ["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}", *options],
            capture_output=True, text=True, env=ENVIRONMENT | variables)

    def expect_error(self, made, *parts):
        said = re.sub(r"\s+", " ", made.stderr)
        self.assertNotEqual(made.returncode, 0, made.stdout)
        for part in parts:
            self.assertIn(part, said)
        self.assertNotRegex(said, TREE)

    def test_a_component_that_there_is_not(self):
        self.expect_error(self.configure("find_package(tutti REQUIRED COMPONENTS cuda)"),
                          "tutti has no component cuda; expected torch, or none")
        self.expect_error(self.configure("find_package(tutti REQUIRED COMPONENTS cuda mpi)"),
                          "tutti has no component cuda; expected torch, or none. tutti has no component mpi;")

    def test_another_version(self):
        self.expect_error(self.configure("find_package(tutti 7.0 REQUIRED)"), 'compatible with requested version "7.0"')

    def test_what_is_optional_is_no_error(self):
        made = self.configure("find_package(tutti REQUIRED OPTIONAL_COMPONENTS cuda)\n"
                              "message(STATUS \"found: ${tutti_FOUND} ${tutti_cuda_FOUND}\")")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("found: TRUE FALSE", made.stdout.replace("found: 1", "found: TRUE"))

    def test_a_library_that_is_missing(self):
        nowhere = {"PKG_CONFIG_LIBDIR": "/nowhere", "PKG_CONFIG_PATH": ""}
        self.expect_error(self.configure("find_package(tutti REQUIRED)", **nowhere),
                          "tutti needs libhwy: install libhwy-dev (Debian, Ubuntu), or name the folder with libhwy.pc in "
                          "PKG_CONFIG_PATH")
        self.expect_error(self.configure("find_package(tutti REQUIRED)", "-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON"),
                          "tutti needs Abseil: install libabsl-dev")
        made = self.configure("find_package(tutti)\nmessage(STATUS \"found: ${tutti_FOUND}\")", **nowhere)
        self.assertEqual(made.returncode, 0, made.stderr)  # a project may do without
        self.assertIn("found: FALSE", made.stdout.replace("found: 0", "found: FALSE"))

    @unittest.skipUnless(TORCH, "a build without libtorch")
    def test_libtorch_that_is_missing(self):
        torch = "find_package(tutti REQUIRED COMPONENTS torch)"
        right = "set TUTTI_TORCH_DIR to the folder that has include/ and lib/ (in a Python environment: site-packages/torch)"
        self.expect_error(self.configure(torch), f"libtorch not found: {right}")
        self.expect_error(self.configure(torch, "-DTUTTI_TORCH_DIR=/nowhere"), f"libtorch not found in /nowhere: {right}")
        self.expect_error(self.configure(torch, TUTTI_TORCH_DIR="/nowhere"), f"libtorch not found in /nowhere: {right}")
        self.expect_error(self.configure(f"set(torch_dir {TORCH})\n{torch}"), f"libtorch not found: {right}")

    @unittest.skipUnless(TORCH, "a build without libtorch")
    def test_the_variable_of_the_environment_helps_also_after_an_error(self):
        # The line that docs/first_steps.md gives to projects makes an entry in CMake's cache, which is empty.
        project = ('set(TUTTI_TORCH_DIR "" CACHE PATH "libtorch")\n'
                   "find_package(tutti REQUIRED COMPONENTS torch)")
        self.expect_error(self.configure(project), "libtorch not found: set TUTTI_TORCH_DIR")
        made = self.configure(project, again=True, TUTTI_TORCH_DIR=TORCH)
        self.assertEqual(made.returncode, 0, made.stderr)

    @unittest.skipUnless(TORCH, "a build without libtorch")
    def test_libtorch_that_is_old(self):
        old = FOLDER / "old_torch"
        for file in ("include/torch/csrc/api/include/torch/torch.h", "lib/libtorch_cpu.so"):
            (old / file).parent.mkdir(parents=True, exist_ok=True)
            (old / file).touch()
        (old / "version.py").write_text("__version__ = '2.4.1'\n", encoding="utf-8")
        self.expect_error(self.configure("find_package(tutti REQUIRED COMPONENTS torch)", f"-DTUTTI_TORCH_DIR={old}"),
                          f"libtorch 2.4.1 in {old}: the adapter needs 2.11 or newer")

    @unittest.skipUnless(TORCH, "a build without libtorch")
    def test_it_may_be_called_again(self):
        made = self.configure("find_package(tutti REQUIRED)\nfind_package(tutti REQUIRED COMPONENTS torch)\n"
                              "find_package(tutti REQUIRED COMPONENTS torch)\nget_target_property(links tutti::torch "
                              "INTERFACE_LINK_LIBRARIES)", f"-DTUTTI_TORCH_DIR={TORCH}")
        self.assertEqual(made.returncode, 0, made.stderr)

    @unittest.skipUnless(TORCH, "a build without libtorch")
    def test_the_torch_beside_the_python_package_is_found(self):
        packages = FOLDER / "site-packages"
        shutil.rmtree(packages, ignore_errors=True)
        packages.mkdir(parents=True)
        (packages / "tutti").symlink_to(PREFIX)
        (packages / "torch").symlink_to(TORCH)
        made = self.configure("find_package(tutti REQUIRED COMPONENTS torch)",
                              f"-Dtutti_DIR={next((packages / 'tutti').glob('lib*/**/cmake/tutti'))}", prefix="")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn(f"in {packages}", made.stdout)

    @unittest.skipIf(TORCH, "a build with libtorch")
    def test_a_tutti_that_was_built_without_libtorch(self):
        self.expect_error(self.configure("find_package(tutti REQUIRED COMPONENTS torch)"),
                          "this tutti lacks its component torch, since it was built without libtorch: install tutti from a "
                          "build with -DTUTTI_TORCH=ON")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
