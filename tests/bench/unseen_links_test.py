"""bench/training/unseen_links.py: which strategies it measures, and what it says of them.

    unseen_links_test.py [FOLDER [CASE]]      (FOLDER: where tutti, delay_switch and train_fashion_mnist are)

With FOLDER a cell is measured, too. Skipped (exit code 77) where the system does not let a test make network namespaces,
where train_fashion_mnist was not built, and where its data set is missing.
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/training"))
import results
import runs
import unseen_links
from links import reason_for_no_hosts

SKIPPED = 77
BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
CELL = unseen_links.cell_of("cnn:2:80mbit:0")  # 10 KB in a millisecond
EXACT, CAST = "gradient_allreduce", "gradient_allreduce:codec=bf16"
TWIN = "gradient_allreduce:codec=fp16"  # of CAST


def told(advised, **more):
    """An advice about strategies that send so many KB."""
    rows = {EXACT: 400, CAST: 200, TWIN: 200, "bytegrad": 100, "async": 1, **more}
    return {"advice": advised,
            "strategies": [{"strategy": name, "competes": name != "async", "wire_bytes": 1000 * kb, "step_s": 0.02}
                           for name, kb in rows.items()]}


def measured(advised, times, rounds=1):
    """The measurement of a cell in which steps take `times`, and the (strategy, round) in the order of measurement."""
    order = []

    def step_ms(strategy, number):
        order.append((strategy, number))
        return times[strategy] + number

    made = unseen_links.Measured(CELL, told(advised), step_ms)
    for number in range(rounds):
        made.measure(number)
    return made, order


class Cells(unittest.TestCase):
    def test_there_are_twelve_that_the_training_table_lacks(self):
        table = json.loads((ROOT / "docs/results/training.json").read_text())["rows"]
        known = {(row["model"], row["ranks"], row["link"]) for row in table}
        unseen = [cell for cell in unseen_links.CELLS if cell.delay_ms or cell[:3] not in known]
        self.assertEqual(unseen, unseen_links.CELLS)
        self.assertGreaterEqual(len(set(unseen)), 12)

    def test_parameters_are_those_of_the_models(self):
        table = json.loads((ROOT / "docs/results/training.json").read_text())["rows"]
        for row in table:
            if (row["strategy"], row["link"]) == (EXACT, "1gbit"):
                sent = 4 * unseen_links.PARAMETERS[row["model"]] * 2 * (row["ranks"] - 1) / row["ranks"]
                self.assertLess(abs(row["bytes_per_step"] / sent - 1), 0.01)

    def test_a_cell_that_is_none_is_refused(self):
        for text in ("cnn:4:1gbit", "gpt:4:1gbit:0", "cnn:four:1gbit:0"):
            with self.assertRaises(ValueError):
                unseen_links.cell_of(text)


class AskedAgain(unittest.TestCase):
    def row_when(self, advised):
        row = {**CELL._asdict(), "cores": 2, "without_ms": 30, "advised": CAST, "fastest": "bytegrad",
               "steps_ms": {"bytegrad": 40, CAST: 50}, "left_out_ms": {EXACT: 60}, "predicted_ms": {}, "ratio": 9}
        with unittest.mock.patch.object(unseen_links, "advice", lambda *_: told(advised)):
            return unseen_links.asked_again("tutti", row)

    def test_the_advice_of_today_is_judged_by_the_steps_of_then(self):
        self.assertEqual((self.row_when("bytegrad")["advised"], self.row_when("bytegrad")["ratio"]), ("bytegrad", 1))
        self.assertEqual(self.row_when(TWIN)["ratio"], 1.25)
        self.assertEqual(self.row_when("bytegrad")["predicted_ms"][EXACT], 20)

    def test_an_advice_that_was_not_measured_is_shown_as_such(self):
        text = "\n".join(unseen_links.tables([self.row_when(EXACT)]))
        self.assertIn(f"| `{EXACT}` | > 60.0 | inf | **no** |", text)

    def test_the_page_keeps_how_it_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            (out / "advise.md").write_text("# Title\n\nMeasured then.\n\nAsked on 2020-01-01, the advice\n")
            (out / "advise.json").write_text(json.dumps({"rows": [self.row_when(CAST)]}))
            words = ["unseen_links.py", "--again", "--out", folder]
            with unittest.mock.patch.object(unseen_links, "advice", lambda *_: told("bytegrad")), \
                    unittest.mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
                unseen_links.main()
            page = (out / "advise.md").read_text()
            title, about, asked, _ = page.split("\n\n", 3)
            self.assertEqual(title, "# The advice of `tutti advise`, on links that were measured before")
            self.assertEqual(about, "Measured then.")
            self.assertIn("to which constants of the prediction have been fitted", asked)
            self.assertIn("in 1 of 1 cells", page)
            self.assertEqual(json.loads((out / "advise.json").read_text())["rows"][0]["advised"], "bytegrad")


class Measuring(unittest.TestCase):
    def test_the_fewest_bytes_are_measured_first_and_twins_and_losses_not_at_all(self):
        made, order = measured(EXACT, {EXACT: 50, CAST: 45, "bytegrad": 40})
        self.assertEqual(order, [("bytegrad", 0), (CAST, 0), (EXACT, 0)])
        self.assertEqual(made.left_out, {})

    def test_what_the_link_makes_slow_is_left_out(self):
        made, order = measured("bytegrad", {EXACT: 50, CAST: 25, "bytegrad": 18.5})  # 18.5 · 1.1 = 20.35 > 20 ms
        self.assertEqual(order, [("bytegrad", 0), (CAST, 0)])
        self.assertEqual(made.left_out, {EXACT: 40})
        made, order = measured("bytegrad", {CAST: 25, "bytegrad": 18})
        self.assertEqual(order, [("bytegrad", 0)])
        self.assertEqual(made.left_out, {CAST: 20, EXACT: 40})

    def test_what_is_advised_is_measured_in_every_round(self):
        made, order = measured(TWIN, {CAST: 95, TWIN: 95, "bytegrad": 10}, rounds=2)
        self.assertEqual(order, [("bytegrad", 0), (TWIN, 0), (TWIN, 1), ("bytegrad", 1)])
        self.assertEqual(made.means(), {"bytegrad": 10.5, TWIN: 95.5})

    def test_rounds_repeat_what_is_near_the_fastest_in_the_opposite_order(self):
        _, order = measured("bytegrad", {EXACT: 53, CAST: 51, "bytegrad": 40}, rounds=3)
        self.assertEqual(order[3:], [(CAST, 1), ("bytegrad", 1), ("bytegrad", 2), (CAST, 2)])

    def test_the_first_steps_do_not_count(self):
        lines = [f"{start} {start + ms / 1e3} 0 0" for start, ms in enumerate((900, 900, 900, 20, 500, 30))]
        self.assertAlmostEqual(unseen_links.median_ms(lines), 30, places=3)


class KeptRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.count = 0

    def make(self, args, run):
        self.count += 1
        return {"step_ms": self.count}

    def runs(self, program, any_program=False):
        (self.folder / runs.PROGRAM).write_text(program)
        return runs.Runs(types.SimpleNamespace(bin=self.folder, any_program=any_program, loaded=True),
                         self.folder / "runs.json", self.make)

    def test_what_another_build_has_made_is_made_again_unless_told(self):
        with unittest.mock.patch.object(runs.idle, "share_in_use", lambda: 0.01), contextlib.redirect_stderr(io.StringIO()):
            steps = [self.runs(program, told).get(strategy=EXACT)["step_ms"]
                     for program, told in (("a", False), ("a", False), ("b", False), ("c", True), ("a", False))]
        self.assertEqual(steps, [1, 1, 2, 2, 1])

    def test_a_run_says_when_and_where_it_was_made(self):
        with unittest.mock.patch.object(runs.idle, "share_in_use", lambda: 0.01), contextlib.redirect_stderr(io.StringIO()):
            made = self.runs("a")
            row = made.get(strategy=EXACT)
        self.assertEqual(made.used, [row])
        self.assertEqual(results.measured([row]), f"{row['date']}, {row['machine']}")
        self.assertEqual(results.beside([row]), "Other programs used 1 % of the processors before the first run.")

    def test_the_page_has_the_range_of_dates(self):
        rows = [{"date": date, "machine": "a PDP", "program": date} for date in ("2026-02-01", "2026-01-01")]
        self.assertEqual(results.measured(rows), "2026-01-01 to 2026-02-01, by 2 builds of the program, a PDP")
        unknown = "2 runs on a day and a machine that are not known"
        self.assertEqual(results.measured([{}, {}, rows[0]]), f"2026-02-01 and {unknown}, a PDP")
        self.assertEqual(results.measured([{}, {}]), unknown)

    def test_a_run_of_a_build_that_nobody_knows_is_made_again_unless_told(self):
        (self.folder / "runs.json").write_text(json.dumps([{"strategy": EXACT, "step_ms": 7}]))
        self.assertEqual(self.runs("a", any_program=True).get(strategy=EXACT)["step_ms"], 7)
        with unittest.mock.patch.object(runs.idle, "share_in_use", lambda: 0.01), contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.runs("a").get(strategy=EXACT)["step_ms"], 1)


class Judgement(unittest.TestCase):
    def row(self, advised, times, without_ms=10):
        return unseen_links.row_of(CELL, without_ms, measured(advised, times)[0])

    def test_the_ratio_is_to_the_fastest(self):
        row = self.row(CAST, {EXACT: 50, CAST: 45, "bytegrad": 40})
        self.assertEqual((row["fastest"], row["ratio"]), ("bytegrad", 45 / 40))
        self.assertEqual(unseen_links.judged(row, "bytegrad"), 1)

    def test_the_fastest_is_a_measured_step_though_one_without_communication_took_longer(self):
        self.assertEqual(self.row(CAST, {EXACT: 50, CAST: 45, "bytegrad": 40}, without_ms=44)["ratio"], 45 / 40)

    def test_a_twin_counts_as_its_twin_and_what_was_left_out_as_a_miss(self):
        row = self.row("bytegrad", {EXACT: 50, CAST: 45, "bytegrad": 18.5})
        self.assertEqual(unseen_links.judged(row, TWIN), 45 / 18.5)
        self.assertEqual(unseen_links.judged(row, EXACT), float("inf"))

    def test_the_page_shows_hits_misses_and_what_was_left_out(self):
        rows = [self.row("bytegrad", {EXACT: 50, CAST: 25, "bytegrad": 18.5}),
                self.row(EXACT, {EXACT: 50, CAST: 45, "bytegrad": 40})]
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            folder = pathlib.Path(out)
            args = types.SimpleNamespace(out=folder, rounds=1, again=False)
            unseen_links.write_page(unseen_links.method(args, [{}]), rows, args)
            page = (folder / "advise.md").read_text()
            self.assertEqual(json.loads((folder / "advise.json").read_text())["rows"], rows)
        self.assertTrue(page.startswith("# The advice of `tutti advise`, on links that the training table lacks\n\nMade by"))
        self.assertIn("in 1 of 2 cells", page)
        self.assertIn("| cnn | 2 | 80 Mb/s | 10.0 | `bytegrad` | 18.5 | `bytegrad` | 18.5 | 1.00 | yes |", page)
        self.assertIn("| 40.0 | `gradient_allreduce` | 50.0 | 1.25 | **no** |", page)
        self.assertIn("| `gradient_allreduce` | > 40.0 (20.0) | 50.0 (20.0) |", page)
        self.assertIn(f"`{TWIN}` is left out: it sends the bytes of `{CAST}`, and computes no less.\n", page)


@unittest.skipUnless(BIN, "no FOLDER was given")
class OneCell(unittest.TestCase):
    def test_a_cell_is_measured_and_written(self):
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([ROOT / "bench/training/unseen_links.py", "--bin", BIN, "--out", out, "--runs", f"{out}/runs.json",
                            "--loaded", "--cells", "cnn:2:50mbit:0.5", "--rounds", "1"], check=True, capture_output=True)
            row, = json.loads((pathlib.Path(out) / "advise.json").read_text())["rows"]
            self.assertEqual((row["ranks"], row["rate"], row["delay_ms"]), (2, "50mbit", 0.5))
            self.assertIn(row["advised"], row["steps_ms"])
            self.assertGreater(min(row["steps_ms"].values()), 1)


def reason_for_no_cell():
    """Why no cell can be measured; None: one can."""
    if not (BIN / "train_fashion_mnist").exists():
        return "train_fashion_mnist was not built"
    return reason_for_no_hosts() if DATA.exists() else f"{DATA} is missing"


if __name__ == "__main__":
    if BIN and (reason := reason_for_no_cell()):
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
