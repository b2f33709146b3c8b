"""Hosts of bench/hosts, and bench/peers/hosts.py on them: hosts_test.py FOLDER, where tutti and delay_switch are.

Skipped (exit code 77) where the system does not let a test make network namespaces.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/hosts"))
from links import UNSHAPED, Hosts, reason_for_no_hosts

SKIPPED = 77
BIN = pathlib.Path(sys.argv.pop(1)).resolve()
BYTES = 4_000_000
# Sends one byte when called, and has the time until an answer; then sends what the receiver compares.
CALLER = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000))
start = time.monotonic()
connection.sendall(b"x")
connection.recv(1)
print(time.monotonic() - start)
connection.sendall(bytes(i % 251 for i in range(int(sys.argv[2]))))
"""
ANSWERER = """
import socket, sys
server = socket.create_server(("", 5000))
print("ready", flush=True)
connection, _ = server.accept()
connection.sendall(connection.recv(1))
received = b""
while part := connection.recv(1 << 20):
    received += part
sys.exit(received != bytes(i % 251 for i in range(int(sys.argv[1]))))
"""


def namespaces():
    return {line.split()[0] for line in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout.splitlines()}


def call(hosts):
    """Seconds that an answer of host 1 to host 0 takes, after 4 MB have arrived as they were sent."""
    answerer = subprocess.Popen(hosts.command(1, [sys.executable, "-c", ANSWERER, str(BYTES)]), stdout=subprocess.PIPE)
    answerer.stdout.readline()
    caller = subprocess.run(hosts.command(0, [sys.executable, "-c", CALLER, hosts.address(1), str(BYTES)]), check=True,
                            capture_output=True, text=True)
    assert answerer.wait() == 0, "other bytes arrived than were sent"
    answerer.stdout.close()
    return float(caller.stdout)


def compared(out, *arguments):
    return [ROOT / "bench/peers/hosts.py", "--bin", BIN, "--only", "tutti", "--hosts", "2", "--rate", "1gbit",
            "--seconds", "0.01", "--rounds", "1", "--loaded", "--out", out, *arguments]


class Links(unittest.TestCase):
    def test_bytes_arrive_as_they_were_sent(self):
        with Hosts(2, "1gbit") as hosts:
            call(hosts)

    def test_a_delay_is_added_to_each_direction(self):
        with Hosts(3, UNSHAPED, 20, BIN / "delay_switch") as hosts:
            self.assertGreaterEqual(call(hosts), 0.04)

    def test_lost_packets_are_sent_again(self):
        with Hosts(2, "1gbit", 1, BIN / "delay_switch", lost_of=50) as hosts:
            call(hosts)
            names, numbers = [line.split() for line in subprocess.run(
                hosts.command(0, ["grep", "^Tcp:", "/proc/net/snmp"]), check=True, capture_output=True,
                text=True).stdout.splitlines()]
        self.assertGreater(int(numbers[names.index("RetransSegs")]), 0)

    def test_processes_and_namespaces_end_with_the_hosts(self):
        with Hosts(2, "1gbit", 1, BIN / "delay_switch") as hosts:
            left = subprocess.Popen(hosts.command(0, ["sleep", "1000"]))
            while left.pid not in map(int, subprocess.run(["ip", "netns", "pids", hosts.name(0)], capture_output=True,
                                                          text=True).stdout.split()):
                pass
        self.assertEqual(left.wait(), -signal.SIGKILL)
        self.assertFalse([name for name in namespaces() if name.startswith(hosts.prefix)])


class Comparison(unittest.TestCase):
    def test_tutti_is_measured_with_and_without_a_delay(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run(compared(out, "-b", "4", "-e", "64K", "-f", "16384", "--delay-ms", "0", "2"), check=True,
                           capture_output=True)
            rows = json.loads((pathlib.Path(out) / "hosts.json").read_text())["rows"]
        self.assertEqual([(row["delay_ms"], row["bytes"]) for row in rows], [(0, 4), (0, 65536), (2, 4), (2, 65536)])
        self.assertTrue(all(row["wrong"] == 0 and row["transport"] == "ucx" for row in rows))
        self.assertTrue(all(row["time_us"] >= 2000 for row in rows if row["delay_ms"] == 2))

    def test_calls_of_other_collectives_begin_together_and_have_a_page_of_their_own(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run(compared(out, "--collective", "gather", "-b", "64K", "-e", "64K", "--delay-ms", "0"), check=True,
                           capture_output=True)
            rows = json.loads((pathlib.Path(out) / "hosts_collectives.json").read_text())["rows"]
            self.assertFalse((pathlib.Path(out) / "hosts.md").exists())
        self.assertEqual([(row["collective"], row["rewrite"]) for row in rows], [("gather", True)])

    def test_a_stopped_comparison_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as out:
            script = subprocess.Popen(compared(out, "-b", "4", "-e", "4", "--seconds", "600"), stderr=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL, text=True)
            while not (line := script.stderr.readline()).endswith("tutti\n"):
                self.assertTrue(line)
            prefix = f"tutti{script.pid}"
            self.assertTrue([name for name in namespaces() if name.startswith(prefix)])
            script.send_signal(signal.SIGTERM)
            script.communicate()
        self.assertNotEqual(script.returncode, 0)
        self.assertFalse([name for name in namespaces() if name.startswith(prefix)])


if __name__ == "__main__":
    if reason := reason_for_no_hosts():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
