"""How the scripts of bench start programs: a failure names the rank and why, and no process is left behind."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/peers"), str(ROOT / "bench/hosts")]
import gloo_collectives
import peers
from links import run_ranks

LIMIT_S = 40
FOREVER = "echo $$ >> $PIDS; echo waits >&2; exec sleep 1000"


def runs(process):
    """Whether a process runs, of which a zombie is no more than the rest."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pids = pathlib.Path(folder.name, "pids")
        self.environment = {**os.environ, "PIDS": str(self.pids)}
        self.addCleanup(self.kill_what_is_left)

    def kill_what_is_left(self):
        """Processes that a failed test has left would keep the standard output of this one open."""
        for process in filter(runs, self.processes()):
            os.kill(process, signal.SIGKILL)

    def processes(self):
        """The processes that have begun to run FOREVER."""
        return list(map(int, self.pids.read_text().split())) if self.pids.exists() else []

    def wait_until_started(self, count=1):
        end = time.monotonic() + LIMIT_S
        while len(self.processes()) < count:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def assert_ended(self):
        end = time.monotonic() + LIMIT_S
        while left := [process for process in self.processes() if runs(process)]:
            self.assertLess(time.monotonic(), end, left)
            time.sleep(0.01)

    def failure(self, *scripts, limit_s=LIMIT_S):
        """What the error says when ranks run these scripts."""
        with self.assertRaises(RuntimeError) as raised:
            run_ranks([["sh", "-c", script] for script in scripts], [self.environment] * len(scripts), limit_s)
        self.assert_ended()
        return str(raised.exception)

    def test_the_rank_that_failed_is_named_though_others_still_run(self):
        after_start = "while ! [ -s $PIDS ]; do sleep 0.01; done; "
        self.assertEqual(self.failure(FOREVER, after_start + "echo no memory >&2; exit 3"),
                         "rank 1 ended with exit code 3\nno memory")
        self.assertEqual(self.failure(FOREVER, "exit 0", after_start + "kill -9 $$"), "rank 2 ended with exit code -9")

    def test_ranks_that_take_too_long_are_named(self):
        self.assertEqual(self.failure("exit 0", FOREVER, limit_s=3), "rank 1 did not end within 3 s\nwaits")

    def test_ranks_end_with_a_script_that_is_ended(self):
        code = ("import os, sys; sys.path.append(sys.argv[1]); from links import run_ranks;"
                "run_ranks([['sh', '-c', sys.argv[2]]] * 2, [os.environ] * 2, 60)")
        script = subprocess.Popen([sys.executable, "-B", "-c", code, str(ROOT / "bench/hosts"), FOREVER],
                                  env=self.environment, stderr=subprocess.DEVNULL)
        self.wait_until_started(2)
        script.send_signal(signal.SIGTERM)
        self.assertNotEqual(script.wait(LIMIT_S), 0)
        self.assert_ended()

    def test_a_script_that_is_ended_while_it_starts_a_rank_ends_the_rank(self):
        code = ("import os, signal, subprocess, sys; sys.path[:0] = sys.argv[1:3]; import links, peers\n"
                "class Popen(subprocess.Popen):\n"
                "    def __init__(self, *command, **options):\n"
                "        super().__init__(*command, **options)\n"
                "        while not os.path.exists(os.environ['PIDS']): pass\n"
                "        os.kill(os.getpid(), signal.SIGTERM)\n"
                "        sum(range(1000))\n"
                "links.end_orderly()\n"
                "subprocess.Popen = Popen\n"
                "rank = ['sh', '-c', sys.argv[4]]\n"
                "links.run_ranks([rank], [os.environ], 60) if sys.argv[3] == 'rank' else peers.run_program(rank)")
        for kind in ("rank", "program"):
            with self.subTest(kind):
                self.pids.unlink(missing_ok=True)
                script = subprocess.run([sys.executable, "-B", "-c", code, str(ROOT / "bench/hosts"), str(ROOT / "bench/peers"),
                                         kind, FOREVER], env=self.environment, stderr=subprocess.DEVNULL, timeout=LIMIT_S)
                self.assertNotEqual(script.returncode, 0)
                self.assertEqual(len(self.processes()), 1)
                self.assert_ended()

    def test_no_process_is_left_of_a_program_that_takes_too_long(self):
        with unittest.mock.patch.object(peers, "TIMEOUT_S", 3), self.assertRaises(subprocess.TimeoutExpired):
            peers.run_program(["sh", "-c", f"sh -c '{FOREVER}' & wait"], self.environment)
        self.assert_ended()

    def test_a_rank_of_gloo_that_fails_is_a_failure(self):
        with unittest.mock.patch.object(sys, "executable", "/bin/sh"), \
                unittest.mock.patch.object(sys, "argv", ["-c", "kill -9 $$"]), self.assertRaisesRegex(RuntimeError, "-9"):
            gloo_collectives.main(["2", "all_reduce", "1", "4"])


if __name__ == "__main__":
    unittest.main()
