"""The pages of bench/training: which times of async compare with those of other strategies; the ratio of a straggler."""

import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/training"))
import page
import straggler

LINKS = ["loopback", "1gbit"]


def row(strategy, link, trained_on, nbytes):
    return {"strategy": strategy, "optimizer": "sgd", "link": link, "trained_on": trained_on, "accuracy": 0.9,
            "step_ms": 25.0, "epoch_seconds": 6.5, "seconds_to_target": None if link == "1gbit" else 24.0,
            "bytes_per_step": nbytes}


def table(links, of_async):
    rows = [row("bytegrad", link, "loopback", 2000) for link in links] + of_async
    return page.table(rows, types.SimpleNamespace(links=links))


class TimesOfAsync(unittest.TestCase):
    def test_of_trainings_on_each_link_are_marked(self):
        lines = table(LINKS, [row("async", link, link, 1000) for link in LINKS])
        self.assertIn("| `bytegrad` | 90.00 % | 2 | 25.0 | 6.5 | 24.0 | 25.0 | 6.5 | — |", lines)
        self.assertIn("| `async` | 90.00 % | 1 | 25.0 ¹ | 6.5 ¹ | 24.0 ¹ | 25.0 ¹ | 6.5 ¹ | — |", lines)
        self.assertIn(" ¹ Its times are those of these trainings", lines[-2])

    def test_of_short_runs_are_like_all_others(self):
        for links in LINKS[:1], LINKS:
            lines = table(links, [row("async", link, "loopback", None) for link in links])
            self.assertNotIn("¹", "".join(lines))
            self.assertIn("was trained on loopback alone", lines[-2])


class Straggler(unittest.TestCase):
    def test_the_page_says_what_the_ratio_is(self):
        row = {"ranks": 4, "strategy": "async", "ratio": 1.5, "cost": 0.01, "step_ms": {"even": [10.0], "straggler": [12.0]},
               "slept_ms": {"even": [0.1], "straggler": [0.2]}}
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            folder = pathlib.Path(out)
            args = types.SimpleNamespace(out=folder, steps=120, rounds=1)
            straggler.write_page([row], types.SimpleNamespace(args=args, used=[{}]))
            text = (folder / "straggler.md").read_text()
        self.assertIn("The ratio is the median of the ratios within each round, and not the ratio of the medians", text)
        self.assertIn("| 4 | `async` | 10.00 | 12.00 | 1.50 |", text)


if __name__ == "__main__":
    unittest.main()
