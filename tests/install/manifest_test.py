#!/usr/bin/env python3
"""CMake's list of Tutti's own schedules, codecs and algorithms: new files are found, misplaced ones are errors.

    manifest_test.py FOLDER      (where copies of the tree's algorithms are made)
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(sys.argv[1])
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(tutti VERSION 1.0.0 LANGUAGES NONE)
# Variables that a project may have that Tutti is a part of.
set(declarations "    &theirs,\n")
set(functions "    &theirs,\n")
set(CODEC_entries "    &theirs,\n")
set(CODEC_symbols theirs)
list(APPEND CMAKE_MODULE_PATH {ROOT}/cmake)
include(TuttiManifest)
tutti_manifest(manifest ${{CMAKE_CURRENT_SOURCE_DIR}}/algorithms)
"""
PLACE = re.compile(r"Save this whole \w+ as `(?P<place>\S+)`:\n\n<!-- file: (?P<file>\S+) -->")


class Manifest(unittest.TestCase):
    def configure(self, change):
        """What CMake says of a copy of the tree after `change`, which is given the folder; and the list, if it is made."""
        folder = FOLDER / self.id().rsplit(".", 1)[-1]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "algorithms", folder / "algorithms", ignore=shutil.ignore_patterns("*.h", "*.cu"))
        (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        change(folder / "algorithms")
        made = subprocess.run(["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build"], capture_output=True,
                              text=True)
        manifest = folder / "build/generated/manifest.cc"
        return re.sub(r"\s+", " ", made.stderr), manifest.read_text() if made.returncode == 0 else None

    def expect_error(self, change, *parts):
        said, manifest = self.configure(change)
        self.assertIsNone(manifest)
        for part in parts:
            self.assertIn(part, said)

    def test_the_toys_of_the_pages_are_found_where_the_pages_put_them(self):
        pages = [(ROOT / f"docs/adding_{name}.md").read_text(encoding="utf-8")
                 for name in ("a_schedule", "a_codec", "an_algorithm")]
        places = [place for text in pages for place in PLACE.finditer(text)]

        def change(algorithms):
            for place in places:
                shutil.copy(ROOT / place["file"], algorithms.parent / place["place"])

        said, manifest = self.configure(change)
        self.assertIsNotNone(manifest, said)
        for symbol in ("tutti_schedule_all_gather_toy", "tutti_schedule_all_reduce_toy", "tutti_codec_toy", "tutti_algorithm_toy"):
            self.assertIn(f"    &{symbol},\n", manifest)

    def test_another_ending_of_a_source(self):
        self.expect_error(lambda algorithms: (algorithms / "schedules/all_reduce/mine.cpp").write_text(""),
                          "algorithms/schedules/all_reduce/mine.cpp: the name of a source in algorithms must end in .cc")

    def test_every_own_file_is_listed_once(self):
        said, manifest = self.configure(lambda algorithms: None)
        self.assertIsNotNone(manifest, said)
        listed = re.findall(r"^    &(\w+),$", manifest, re.M)
        files = list((ROOT / "algorithms").rglob("*.cc"))
        self.assertEqual(len(listed), len(files))
        self.assertEqual(len(set(listed)), len(files))
        codecs = len(list((ROOT / "algorithms/codecs").glob("*.cc")))
        self.assertIn(f"return {{kOwn, {codecs}}};", manifest)

    def test_a_wrong_file_name(self):
        self.expect_error(lambda a: (a / "codecs/bf16.cc").rename(a / "codecs/bfloat.cc"),
                          "algorithms/codecs/bfloat.cc: TUTTI_CODEC(bf16) is in the wrong place; expected: the file "
                          "algorithms/codecs/bf16.cc, or the macro of what algorithms/codecs/bfloat.cc says")

    def test_a_wrong_folder(self):
        self.expect_error(lambda a: (a / "schedules/all_gather/ring.cc").rename(a / "schedules/reduce/ring.cc"),
                          "algorithms/schedules/reduce/ring.cc: TUTTI_SCHEDULE(all_gather, ring) is in the wrong place; "
                          "expected: the file algorithms/schedules/all_gather/ring.cc")
        self.expect_error(lambda a: (a / "codecs/bf16.cc").rename(a / "bf16.cc"),
                          "algorithms/bf16.cc: TUTTI_CODEC(bf16) is in the wrong place")

    def test_a_copy_under_another_name(self):
        self.expect_error(lambda a: shutil.copy(a / "bytegrad.cc", a / "bytegrad2.cc"),
                          "algorithms/bytegrad2.cc: TUTTI_ALGORITHM(bytegrad) is in the wrong place")

    def test_a_copy_whose_name_in_the_record_is_still_the_old_one(self):
        def change(algorithms):
            text = (algorithms / "bytegrad.cc").read_text(encoding="utf-8")
            (algorithms / "bytegrad2.cc").write_text(
                text.replace("TUTTI_ALGORITHM(bytegrad)", "TUTTI_ALGORITHM(bytegrad2)"), encoding="utf-8")

        self.expect_error(change, 'algorithms/bytegrad2.cc: TUTTI_ALGORITHM(bytegrad2) has .name = "bytegrad"; expected '
                          '.name = "bytegrad2"')

    def test_a_source_without_a_record(self):
        self.expect_error(lambda a: (a / "arithmetic.cc").write_text("int x;\n"),
                          "algorithms/arithmetic.cc: expected one record", "found none")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
