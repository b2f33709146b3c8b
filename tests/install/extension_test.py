#!/usr/bin/env python3
"""Follows the pages on extending Tutti, from an installed Tutti alone, and makes the mistakes that they warn of.

    extension_test.py PREFIX FOLDER COMPILER [PYTHON PACKAGE]

FOLDER is where projects are made and built, PYTHON an interpreter for the Python package in the folder PACKAGE.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX, FOLDER, COMPILER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
PYTHON, PACKAGE = sys.argv[4:6] if len(sys.argv) > 4 else (None, None)
PAGES = ("adding_a_schedule", "adding_a_codec", "adding_an_algorithm")
BLOCK = re.compile(r"^<!-- file: (?P<file>\S+) -->\n```\w+\n(?P<code>.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"^    ((?:cmake|export|/opt/tutti/bin/tutti) .*)$", re.M)
PYTHON_COMMAND = re.compile(r"^    (?P<program>torchrun|python) (?P<arguments>.*)$", re.M)
ENVIRONMENT = {**os.environ, "CMAKE_GENERATOR": "Ninja", "CXX": COMPILER, "CXXFLAGS": "-O0",
               "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
ENVIRONMENT.pop("TUTTI_EXTENSIONS", None)


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def run(*command, **more):
    environment = {**ENVIRONMENT, **more.pop("env", {})}
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment, **more)


def project(name, cmake, files):
    """Makes and configures a project that has found Tutti; returns its folder and what CMake said."""
    folder = FOLDER / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject({name} LANGUAGES CXX)\nfind_package(tutti REQUIRED)\n{cmake}",
        encoding="utf-8")
    made = run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={PREFIX}")
    return folder, made


def schedule(name, macro="", collective="kAllGather", record_name=None):
    """A schedule that promises to gather, but does nothing."""
    return f"""#include "tutti/schedule.h"
{macro or f'TUTTI_SCHEDULE(all_gather, {name})'} = {{
    .collective = tutti::Collective::{collective},
    .name = "{record_name or name}",
    .summary = "",
    .cost = "",
    .supports = tutti::SupportsAll,
    .build = [](tutti::PlanBuilder&) {{}},
}};
"""


# A script for torchrun: stock DistributedDataParallel with a codec from outside, and a call with a schedule from outside.
STOCK = """import torch
import torch.distributed as dist

import tutti.torch

dist.init_process_group("tutti")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
exchange = tutti.torch.register(model, "bytegrad:codec=toy")
model(torch.ones(4, 100)).sum().backward()
assert (model.module.weight.grad - 4).abs().max() < 0.1, model.module.weight.grad
gathered = torch.empty(2, dtype=torch.int32)
dist.all_gather_into_tensor(gathered, torch.tensor([dist.get_rank()], dtype=torch.int32))
if dist.get_rank() == 0:
    print(exchange.strategy, "gathered", gathered.tolist())
dist.destroy_process_group()
"""


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Follows the pages to the end: saves their files, and runs the commands of extensions.md."""
        cls.folder = FOLDER / "pages"
        example = cls.folder / "docs/examples/extension"
        shutil.copytree(ROOT / "docs/examples/extension", example)
        for name in PAGES:
            for block in BLOCK.finditer(page(name)):
                file = cls.folder / block["file"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block["code"], encoding="utf-8")
        cls.printed = {}
        environment = {}
        for command in COMMAND.findall(page("extensions")):
            if command.startswith("cmake --install"):
                continue  # the test before this one has installed Tutti
            if command.startswith("export "):
                name, value = command.removeprefix("export ").split("=")
                environment[name] = value
                continue
            made = run("sh", "-c", command.replace("/opt/tutti", str(PREFIX)), cwd=cls.folder, env=environment)
            if made.returncode != 0:
                raise AssertionError(f"{command} ended with {made.returncode}\n{made.stdout}{made.stderr}")
            cls.printed[command] = made.stdout
        cls.library = cls.folder / "build/toys/libtoys.so"

    def tutti(self, *arguments, extensions):
        return run(PREFIX / "bin/tutti", *arguments, cwd=self.folder, env={"TUTTI_EXTENSIONS": str(extensions)})

    def printed_by(self, part):
        (printed,) = [text for command, text in self.printed.items() if part in command]
        return printed

    def test_the_program_uses_the_names_on_three_ranks(self):
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3 has used its own schedule, codec and algorithm",
                          self.printed_by("launch"))

    def test_plans_of_the_loaded_library_are_verified(self):
        for schedule in ("all_gather:toy", "all_reduce:toy"):
            self.assertIn(schedule, self.printed_by(f"plan {schedule}"))
        self.assertIn("toy", self.printed_by("plan bytegrad:codec=toy"))
        for name in ("all_gather:toy: the results of", "all_reduce:toy: the results of", "codec=toy: ", "toy:interval=2: the plans of"):
            self.assertIn(name, self.printed_by("check "))
        for command, text in self.printed.items():
            if "--verify" in command:
                self.assertIn("verified", text, command)

    def test_the_bench_measures_and_the_listing_has_the_names(self):
        self.assertRegex(self.printed_by("bench"), r"65536.* toy")
        info = self.printed_by("info")
        self.assertIn("algorithm toy, codec toy, schedule all_gather:toy, schedule all_reduce:toy", info)
        self.assertRegex(info, r"all_gather +.*\btoy\b")

    def test_a_schedule_from_outside_competes(self):
        printed = self.tutti("plan", "all_gather", "--ranks", "4", "--bytes", "1M", "--cost", extensions=self.library)
        self.assertRegex(printed.stdout, r"\btoy\b", printed.stderr)

    def python(self, *command, **environment):
        return run(PYTHON, *command, cwd=self.folder, env={
            "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1", "TUTTI_EXTENSIONS": str(self.library), **environment})

    @unittest.skipIf(PYTHON is None, "a build without the Python package")
    def test_python_trains_as_the_page_says(self):
        commands = PYTHON_COMMAND.findall(page("extensions"))
        self.assertEqual([program for program, _ in commands], ["torchrun", "python", "python"])
        for program, arguments in commands:
            *options, script, strategy = arguments.split()
            torchrun = ["-m", "torch.distributed.run"] if program == "torchrun" else []
            ran = self.python(*torchrun, *options, ROOT / script, strategy)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertRegex(ran.stdout, r"loss 0\.0\d* on 2 ranks", strategy)

    @unittest.skipIf(PYTHON is None, "a build without the Python package")
    def test_stock_ddp_and_calls_of_torch(self):
        script = self.folder / "stock.py"
        script.write_text(STOCK, encoding="utf-8")
        ran = self.python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script,
                          TUTTI_SCHEDULE="all_gather=toy")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"^bytegrad:.*codec=toy.* gathered \[0, 1\]$")

    @unittest.skipIf(PYTHON is None, "a build without the Python package")
    def test_an_unknown_strategy_of_python_says_which_extension_is_missing(self):
        ran = self.python("-c", "import tutti.torch; tutti.torch.parse_strategy('toy')", TUTTI_EXTENSIONS="nowhere/libtoys.so")
        self.assertRegex(ran.stderr, r"no algorithm is named 'toy'.*; an extension is missing: extension nowhere/libtoys\.so")

    def test_a_library_that_is_named_twice_is_loaded_once(self):
        printed = self.tutti("info", extensions=f"{self.library}:{self.library}")
        self.assertEqual(printed.returncode, 0, printed.stderr)

    def test_ranks_with_different_extensions_are_told(self):
        tutti = PREFIX / "bin/tutti"
        script = f'[ "$TUTTI_RANK" = 0 ] || export TUTTI_EXTENSIONS={self.library}; exec {tutti} bench all_gather -e 4'
        ran = run(tutti, "launch", "-n", "2", "--", "sh", "-c", script)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("rank 1 has extensions=algorithm toy, codec toy, schedule all_gather:toy, schedule all_reduce:toy, rank 0 has ", ran.stderr)

    def expect_error(self, extensions, *parts):
        printed = self.tutti("plan", "all_gather:toy", "--ranks", "2", "--bytes", "1K", extensions=extensions)
        self.assertEqual(printed.returncode, 2, printed.stdout)
        for part in parts:
            self.assertIn(part, printed.stderr)

    def test_a_file_that_does_not_exist(self):
        self.expect_error("nowhere/libmine.so", "extension nowhere/libmine.so: the file cannot be read: No such file")

    def test_a_file_that_is_no_library(self):
        self.expect_error(self.folder / "build/toys/build.ninja", "build.ninja: the library cannot be loaded")

    def test_a_library_without_an_extension(self):
        folder, made = project("none", "add_library(none MODULE none.cc)", {"none.cc": "int none = 0;"})
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(run("cmake", "--build", folder / "build").returncode, 0)
        self.expect_error(folder / "build/libnone.so", "the library registers nothing",
                          "add_library(… MODULE) and tutti_add_extensions")

    def test_names_that_are_taken_another_version_and_broken_plans(self):
        folder, made = project(
            "wrong", """
add_library(taken MODULE)
tutti_add_extensions(taken ring.cc)
add_library(broken MODULE)
tutti_add_extensions(broken broken.cc)
add_executable(program program.cc)
tutti_add_extensions(program ring.cc)
set_property(GLOBAL PROPERTY TUTTI_VERSION 0.0.9)
add_library(older MODULE)
tutti_add_extensions(older broken.cc)
""", {"ring.cc": schedule("ring"), "broken.cc": schedule("broken"),
      "program.cc": """#include <cstdio>
#include "tutti/extension.h"
int main(int, char** argv) {
  std::puts(tutti::ExtensionStatus().ToString().c_str());
  std::puts(tutti::LoadExtension(argv[1]).ToString().c_str());
  std::puts(tutti::ExtensionNames().c_str());
  std::puts(tutti::FindSchedule(tutti::Collective::kAllGather, "broken").status().ToString().c_str());
  std::puts(tutti::FindSchedule(tutti::Collective::kAllGather, "other").status().ToString().c_str());
}
"""})
        self.assertEqual(made.returncode, 0, made.stderr)
        built = run("cmake", "--build", folder / "build")
        self.assertEqual(built.returncode, 0, built.stdout)
        taken = "extension taken: there is a schedule all_gather:ring already; give this one another name"
        self.expect_error(folder / "build/libtaken.so", "libtaken.so", taken)
        self.expect_error(folder / "build/libolder.so", "it was built with Tutti 0.0.9, and this is Tutti",
                          "build the extension again")
        refused, loaded, names, found, unknown = run(folder / "build/program", folder / "build/libbroken.so").stdout.splitlines()
        self.assertIn("extension program: there is a schedule all_gather:ring already", refused)
        self.assertEqual((loaded, names, found), ("OK", "schedule all_gather:broken", "OK"))
        self.assertRegex(unknown, "unknown schedule 'other' of all_gather; valid: .*broken.*; an extension is missing: "
                         "extension program: there is a schedule all_gather:ring already")
        verified = self.tutti("plan", "all_gather:broken", "--ranks", "3", "--bytes", "1K", "--verify",
                              extensions=folder / "build/libbroken.so")
        self.assertNotEqual(verified.returncode, 0)
        self.assertIn("element", verified.stdout + verified.stderr)
        drawn = self.tutti("plan", "all_gather:broken", "--ranks", "3", "--bytes", "1K", "--draw-steps",
                           folder / "broken.dot", extensions=folder / "build/libbroken.so")
        self.assertEqual(drawn.returncode, 1, drawn.stderr)
        self.assertRegex(drawn.stderr, r"tutti: the plan that \S+/broken.dot shows is wrong: .*rank \d")


class Flags(unittest.TestCase):
    def test_the_target_of_another_folder_computes_the_same_bits(self):
        folder, made = project("folders", "add_subdirectory(app)\ntutti_add_extensions(train mine.cc)", {
            "app/CMakeLists.txt": "add_executable(train train.cc)", "app/train.cc": "int main() {}",
            "mine.cc": schedule("mine")})
        self.assertEqual(made.returncode, 0, made.stderr)
        commands = run("ninja", "-C", folder / "build", "-t", "commands", "train").stdout.splitlines()
        compiled, = [command for command in commands if "-c " in command and command.endswith("/mine.cc")]
        self.assertIn(" -ffp-contract=off ", compiled)


class Variables(unittest.TestCase):
    def test_those_of_the_project_are_its_own(self):
        """A program of the project lists its files, and the extension of a module has none of them."""
        folder, made = project("variables", """set(files main.cc)
set(symbols tutti_schedule_all_gather_mine)
set(declarations "no C++")
set(arrays "no C++")
set(fields id name)
set(schedules_entries "nullptr, ")
set(type_of_codecs int)
set(codecs_entries 7)
add_executable(train ${files})
add_library(mine MODULE)
tutti_add_extensions(mine mine.cc)
""", {"main.cc": "int main() {}", "mine.cc": schedule("mine")})
        self.assertEqual(made.returncode, 0, made.stderr)
        commands = run("ninja", "-C", folder / "build", "-t", "commands", "mine").stdout
        self.assertEqual(sorted(re.findall(r" -c (?:\S+/)?(\w+\.cc)$", commands, re.M)), ["mine.cc", "mine_extension.cc"])
        built = run("cmake", "--build", folder / "build")
        self.assertEqual(built.returncode, 0, built.stdout)
        generated = (folder / "build/mine_extension.cc").read_text(encoding="utf-8")
        self.assertIn("schedules[] = {&tutti_schedule_all_gather_mine, };", generated)


class Mistakes(unittest.TestCase):
    """What CMake says of files that are not what they should be."""

    def expect_error(self, name, cmake, files, *parts):
        _, made = project(name, cmake, files)
        self.assertNotEqual(made.returncode, 0)
        said = re.sub(r"\s+", " ", made.stderr)
        for part in parts:
            self.assertIn(part, said)

    def test_a_file_that_is_called_otherwise(self):
        self.expect_error("otherwise", "add_library(x MODULE)\ntutti_add_extensions(x theirs.cc)",
                          {"theirs.cc": schedule("mine")},
                          "theirs.cc: TUTTI_SCHEDULE(all_gather, mine) is in the wrong file; expected the file mine.cc, "
                          "or the name theirs")

    def test_a_record_that_is_called_otherwise(self):
        self.expect_error("record", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc)",
                          {"mine.cc": schedule("mine", record_name="theirs")},
                          'mine.cc: TUTTI_SCHEDULE(all_gather, mine) has .name = "theirs"; expected .name = "mine"')

    def test_a_collective_that_is_another(self):
        self.expect_error("collective", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc)",
                          {"mine.cc": schedule("mine", collective="kAllToAllV")},
                          "mine.cc: TUTTI_SCHEDULE(all_gather, mine) has .collective = tutti::Collective::kAllToAllV, "
                          "which is all_to_all_v")

    def test_a_file_without_a_record_and_one_with_two(self):
        self.expect_error("without", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc)", {"mine.cc": "int x;"},
                          "mine.cc: expected one record", "found none")
        self.expect_error("two", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc)",
                          {"mine.cc": schedule("mine") + schedule("other")}, "found TUTTI_SCHEDULE(all_gather, mine) and "
                          "TUTTI_SCHEDULE(all_gather, other)")

    def test_a_name_that_is_none(self):
        self.expect_error("name", "add_library(x MODULE)\ntutti_add_extensions(x Mine.cc)",
                          {"Mine.cc": schedule("Mine")}, "expected a name of lower-case letters, digits and _")

    def test_a_name_twice(self):
        (FOLDER / "other").mkdir(parents=True, exist_ok=True)
        (FOLDER / "other/mine.cc").write_text(schedule("mine"))
        self.expect_error("twice", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc ../other/mine.cc)",
                          {"mine.cc": schedule("mine")}, "other/mine.cc: TUTTI_SCHEDULE(all_gather, mine) is defined twice")

    def test_a_file_that_does_not_exist_no_file_and_libraries_that_programs_link(self):
        self.expect_error("missing", "add_library(x MODULE)\ntutti_add_extensions(x mine.cc)", {},
                          "missing/mine.cc does not exist")
        self.expect_error("nothing", "add_library(x MODULE)\ntutti_add_extensions(x)", {}, "expected the files")
        self.expect_error("static", "add_library(x STATIC)\ntutti_add_extensions(x mine.cc)",
                          {"mine.cc": schedule("mine")}, "x is a STATIC_LIBRARY", "OBJECT or MODULE")
        self.expect_error("shared", "add_library(x SHARED)\ntutti_add_extensions(x mine.cc)",
                          {"mine.cc": schedule("mine")}, "x is a SHARED_LIBRARY, whose extension the Tutti of the "
                          "program would not know", "OBJECT, or one that is MODULE")


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    unittest.main(argv=sys.argv[:1])
