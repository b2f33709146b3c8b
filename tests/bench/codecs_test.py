"""What bench/kernels/codecs.py makes of the times of a bench: ratios to memcpy, and what memory allows."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/kernels/codecs.py"
LARGE, SMALL = 16 << 20, 16 << 10
TIMES_MS = {f"MemcpyOfElements/{LARGE}": 12, f"MemcpyOfElements/{SMALL}": 0.002,
            f"Encode/uint8_block:block=1024/{LARGE}": 8, f"Encode/uint8_block:block=1024/{SMALL}": 0.004,
            f"Accumulate/uint8_block:block=1024/{LARGE}": 8, f"Encode/bf16/{LARGE}": 10, f"Accumulate/bf16/{LARGE}": 9,
            f"Encode/sign:block=256/{LARGE}": 6,
            f"Traffic/Encode:4/0/{LARGE}": 9, f"Traffic/Encode:4/8192/{LARGE}": 7.5,
            f"Traffic/Accumulate:4/0/{LARGE}": 6, f"Traffic/Encode:2/0/{LARGE}": 8,
            f"Traffic/Accumulate:2/0/{LARGE}": 10, f"Traffic/read/0/{LARGE}": 4, f"Traffic/stream/0/{LARGE}": 3}


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            rows = [{"name": name, "cpu_time": 1e6 * ms} for name, ms in TIMES_MS.items()]
            bench = pathlib.Path(folder, "bench")
            bench.write_text(f"#!{sys.executable}\nprint({json.dumps({'benchmarks': rows})!r})\n")
            bench.chmod(0o700)
            subprocess.run([sys.executable, "-B", SCRIPT, bench, "--rounds", "1", "--out", folder, "--loaded"], check=True)
            cls.page = pathlib.Path(folder, "codecs.md").read_text()

    def row(self, first):
        cells = [line.strip("| ").split(" | ") for line in self.page.splitlines() if line.startswith(f"| {first} |")]
        self.assertEqual(len(cells), 1, first)
        return [cell.strip() for cell in cells[0]]

    def test_a_codec_is_compared_with_memcpy_and_with_the_fastest_traffic_of_its_kind(self):
        row = self.row("`uint8_block:block=1024` encode")
        self.assertEqual(row[1:9], ["—", "8.4", "—", "1.50", "1.60", "1.8", "—", "16.4"])

    def test_traffic_of_a_codec_that_is_not_measured_is_a_dash(self):
        self.assertEqual(self.row("`sign:block=256` encode")[4:7], ["2.00", "—", ""])

    def test_a_goal_beyond_what_memory_allows_is_named(self):
        self.assertIn("Goals that memory does not allow on this machine: `uint8_block:block=1024` encode (1.8, memory"
                      " allows 1.60), `bf16` decode and add (1.3, memory allows 1.20).\n", self.page)

    def test_a_missed_goal_is_named(self):
        self.assertIn("Goals missed: `uint8_block:block=1024` encode (1.8, measured 1.50), `uint8_block:block=1024` decode"
                      " and add (1.6, measured 1.50), `bf16` encode (1.3, measured 1.20).\n", self.page)

    def test_traffic_has_its_bytes_and_its_speed(self):
        self.assertEqual(self.row("values are read, a message of 1/4 is written")[1:5], ["4", "1", "1", "8.9"])
        self.assertEqual(self.row("a message of 1/2 is read and added to values")[1:4], ["6", "4", "0"])
        self.assertEqual(self.row("values are written past the cache")[-1], "4.00")


if __name__ == "__main__":
    unittest.main()
