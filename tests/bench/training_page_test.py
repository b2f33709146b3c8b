"""bench/training/page.py: which times of async compare with those of the other strategies, and which do not."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/training"))
import page

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


if __name__ == "__main__":
    unittest.main()
