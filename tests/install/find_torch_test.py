#!/usr/bin/env python3
"""Where the build of Tutti's own sources looks for libtorch, and what the build says where there is none.

    find_torch_test.py FOLDER      (where projects, environments of Python and stubs of torch are made)
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(sys.argv[1]).resolve()
# What is of the machine that the test runs on, and what would hide or show a torch.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("TUTTI_TORCH_DIR", "PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUSERBASE")}
ENVIRONMENT["TUTTI_DEPS"] = str(FOLDER / "nothing")
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(tutti LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH {ROOT}/cmake)
include(TuttiTorch)
"""


def stub(packages, version="2.99.0"):
    """A folder ``torch`` in ``packages`` with what the build looks at."""
    for file in ("__init__.py", "include/torch/csrc/api/include/torch/torch.h", "lib/libtorch_cpu.so"):
        (packages / "torch" / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / "torch" / file).touch()
    (packages / "torch/version.py").write_text(f"__version__ = '{version}'\n", encoding="utf-8")
    return packages / "torch"


class FindTorch(unittest.TestCase):
    def setUp(self):
        self.folder = FOLDER / self.id().rsplit(".", 1)[-1]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")

    def configure(self, *options, **variables):
        """Runs CMake in the folder of the run before; returns what CMake said, in one line, and whether it succeeded."""
        made = subprocess.run(["cmake", "-S", self.folder, "-B", self.folder / "build", "-DTUTTI_TORCH=ON", *options],
                              capture_output=True, text=True, env=ENVIRONMENT | variables)
        return re.sub(r"\s+", " ", made.stdout + made.stderr), made.returncode == 0

    def by_pip(self, python, **variables):
        return self.configure("-DSKBUILD=2", f"-DPython_EXECUTABLE={python}", **variables)

    def python(self, **options):
        """An interpreter in an environment of its own, which has no torch."""
        venv.create(self.folder / "venv", **options)
        return self.folder / "venv/bin/python"

    def expect(self, made, torch):
        said, well = made
        self.assertTrue(well, said)
        self.assertIn(f"libtorch 2.99.0 in {torch}", said)

    def test_pip_finds_torch_of_the_user(self):
        """`pip install --user torch`, and then `pip install .`, which hides the user's packages from the build."""
        base = self.folder / "base"
        torch = stub(base / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")
        # With the system's packages an environment has the user's, too.
        python = self.python(system_site_packages=True)
        self.expect(self.by_pip(python, PYTHONUSERBASE=str(base), PYTHONNOUSERSITE="1"), torch)

    def test_pip_finds_torch_on_the_python_path(self):
        """Modules of clusters, and `pip install --no-build-isolation .`"""
        torch = stub(self.folder / "module")
        self.expect(self.by_pip(self.python(), PYTHONPATH=str(self.folder / "module")), torch)

    def test_variables_of_the_project_stay_as_they_are(self):
        """`find_package(tutti COMPONENTS torch)` includes the file, too, among the variables of another project."""
        torch = stub(self.folder / "module")
        (self.folder / "CMakeLists.txt").write_text(PROJECT.replace("include(", """
get_cmake_property(before VARIABLES)
include(""") + """
get_cmake_property(after VARIABLES)
list(REMOVE_ITEM after ${before} before)
list(FILTER after INCLUDE REGEX "^[a-z]")
list(FILTER after EXCLUDE REGEX "^tutti_")
message(STATUS "variables: [${after}]")
""", encoding="utf-8")
        made = self.configure(f"-DTUTTI_TORCH_DIR={torch}")
        self.expect(made, torch)
        self.assertIn("variables: []", made[0])

    def test_pip_says_what_to_do_where_the_build_has_a_python_of_its_own(self):
        python = self.python()
        said, well = self.by_pip(python)
        self.assertFalse(well, said)
        self.assertIn(f"{python} has none: run `pip install torch` first", said)
        self.assertIn("--no-build-isolation, or set TUTTI_TORCH_DIR to the folder site-packages/torch", said)

    def test_the_environment_is_read_in_each_run_of_cmake_until_it_is_right(self):
        python, torch = self.python(), stub(self.folder / "elsewhere")
        self.assertFalse(self.by_pip(python)[1])
        said, well = self.by_pip(python, TUTTI_TORCH_DIR="/nowhere")
        self.assertFalse(well, said)
        self.assertIn("libtorch not found in /nowhere", said)
        self.expect(self.by_pip(python, TUTTI_TORCH_DIR=str(torch)), torch)
        self.expect(self.by_pip(python), torch)  # as when a build configures itself anew in another shell

    def test_a_torch_that_is_too_old_is_left_alone_where_none_is_asked_for(self):
        old = f"-DTorch_DIR={stub(self.folder / 'old', '2.4.1') / 'share/cmake/Torch'}"
        unknown = f"-DTorch_DIR={stub(self.folder / 'unknown', '') / 'share/cmake/Torch'}"
        for option, mistake in ((old, "libtorch 2.4.1 in "), (unknown, "is of an unknown version")):
            for torch in ("AUTO", "ON"):
                said, well = self.configure(option, f"-DTUTTI_TORCH={torch}")
                self.assertEqual(well, torch == "AUTO", said)
                self.assertRegex(said, f"{mistake}.*: the adapter needs 2.11 or newer")
                self.assertEqual("Building without the torch::nn adapter" in said, torch == "AUTO", said)

    def test_the_wheel_of_another_project_may_have_the_core_alone(self):
        (self.folder / "tutti").mkdir()
        (self.folder / "CMakeLists.txt").rename(self.folder / "tutti/CMakeLists.txt")
        (self.folder / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(wheel LANGUAGES NONE)\nadd_subdirectory(tutti)\n",
            encoding="utf-8")
        # Also where `.ci/install torch` has put a libtorch, which the wheel of another machine would lack.
        stub(self.folder / "deps/torch-2.11/lib/python3.11/site-packages")
        said, well = self.configure("-DSKBUILD=2", f"-DPython_EXECUTABLE={self.python()}", "-DTUTTI_TORCH=AUTO",
                                    TUTTI_DEPS=str(self.folder / "deps"))
        self.assertTrue(well, said)
        self.assertIn("Building without the torch::nn adapter: libtorch not found", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
