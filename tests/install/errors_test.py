#!/usr/bin/env python3
"""What the command of an installed Tutti says on a machine that lacks something: errors for who has no source tree.

    errors_test.py PREFIX FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

PREFIX, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TUTTI = PREFIX / "bin/tutti"
# What only a source tree has.
TREE = re.compile(r"\.ci/|[Mm]akefile|preset|build/|cmake/|bindings/|src/|tests/")


class Errors(unittest.TestCase):
    def tutti(self, *arguments, **variables):
        return subprocess.run([TUTTI, *arguments], capture_output=True, text=True, env=os.environ | variables)

    @unittest.skipIf(b"/libucp.so" in TUTTI.read_bytes(), "UCX is loaded from a folder of its own")
    def test_ucx_that_is_missing(self):
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "libucp.so.0").touch()  # found first, and no library
        ran = self.tutti("launch", "-n", "2", "--", TUTTI, "bench", "all_reduce", "-e", "4", LD_LIBRARY_PATH=str(FOLDER))
        self.assertNotEqual(ran.returncode, 0)
        self.assertRegex(ran.stderr, r"UCX cannot be loaded: .*libucp\.so\.0: file too short; install UCX 1\.13 or later "
                         r"\(libucx0 of Debian and Ubuntu\), or name its folder in LD_LIBRARY_PATH")

    def test_what_the_command_prints_of_itself_is_for_its_users(self):
        printed = self.tutti("info").stdout
        self.assertIn("GPU", printed)
        self.assertNotRegex(printed, TREE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
