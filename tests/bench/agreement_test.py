"""What bench/selection/agreement.py makes of its rows."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/selection"))
import agreement


def rows_of(schedule, predicted, times, **facts):
    return [{"round": turn, "links": "mapped", "ranks": 4, "collective": "broadcast", "schedule": schedule, "bytes": 4,
             "measured": us, "predicted": predicted, "version": "0.1.0", "program": "a", "date": "2026-01-02",
             "machine": "2 cores", "in_use": 0.01, **facts} for turn, us in enumerate(times)]


# A `tutti` that predicts nothing for all_to_all_v, and whose schedule `broken` fails. $0.calls has the collectives that
# were measured.
TUTTI = """#!/bin/sh
case "$*" in
--version) echo 0.1.0 ;;
"docs schedules") printf '\\n## broadcast\\n| `direct` |\\n| `ring` |\\n## all_to_all_v\\n| `direct` |\\n| `pairwise` |\\n' ;;
plan*) ;;
*--no-check*) exit 2 ;;
*broken*) echo no memory >&2; exit 3 ;;
bench*)
  echo "$2" >> "$0.calls"
  predicted=2; [ "$2" = all_to_all_v ] && predicted=null
  echo '{"rows": [{"bytes": 4, "time_us": 1, "predicted_us": '$predicted'}]}' ;;
esac
"""


class Measuring(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tutti = self.folder / "tutti"
        self.json = self.folder / "rows.json"
        self.page = self.folder / "page.md"

    def run_script(self, program=TUTTI):
        self.tutti.write_text(program)
        self.tutti.chmod(0o755)
        words = ["agreement.py", "--tutti", str(self.tutti), "--rounds", "2", "--ranks", "2", "--links", "mapped",
                 "--json", str(self.json), "--page", str(self.page)]
        with unittest.mock.patch.object(sys, "argv", words), contextlib.redirect_stderr(io.StringIO()), \
                unittest.mock.patch.object(agreement.idle, "wait_until_idle", lambda loaded: 0.01):
            agreement.main()

    def test_what_is_not_predicted_is_measured_once_and_left_out_of_the_page(self):
        self.run_script()
        calls = pathlib.Path(f"{self.tutti}.calls").read_text().split()
        self.assertEqual((calls.count("broadcast"), calls.count("all_to_all_v")), (4, 1))
        self.assertIn("Left out, because nothing is predicted for it: all_to_all_v.", self.page.read_text())

    def test_a_schedule_that_fails_leaves_the_rows_before_and_the_reason(self):
        with self.assertRaisesRegex(SystemExit, r"stopped \(failed \(3\): .*broken"):
            self.run_script(TUTTI.replace("| `pairwise` |", "| `broken` |").replace('predicted=null', 'predicted=3'))
        kept = json.loads(self.json.read_text())
        self.assertEqual([(row["collective"], row["schedule"]) for row in kept["rows"]],
                         [("broadcast", "direct"), ("broadcast", "ring"), ("all_to_all_v", "direct")])
        self.assertIn("**Incomplete**: the measurement was stopped (failed (3)", self.page.read_text())
        with self.assertRaisesRegex(SystemExit, "stopped"):  # from the file
            self.run_script()
        self.assertIn("**Incomplete**", self.page.read_text())


class Pages(unittest.TestCase):
    def test_a_collective_without_predictions_is_left_out(self):
        page = agreement.page_of(rows_of("direct", 1, (4, 4)) + rows_of("ring", 2, (9, 9))
                                 + rows_of("direct", None, (1, 1), collective="all_to_all_v")
                                 + rows_of("pairwise", None, (5, 5), collective="all_to_all_v"))
        self.assertIn("Left out, because nothing is predicted for it: all_to_all_v.", page)
        self.assertIn("Of 1 cells", page)

    def test_one_fast_round_of_the_choice_does_not_hide_the_others(self):
        page = agreement.page_of(rows_of("direct", 1, (2, 10, 10)) + rows_of("ring", 2, (4, 4, 4)))
        self.assertIn("| mapped | 4 | 0 | – | 2.50, 2.50 |", page)

    def test_the_page_says_when_where_and_with_which_build_rows_were_measured(self):
        page = agreement.page_of(rows_of("direct", 2, (9, 9)) + rows_of("ring", 1, (4, 4), program="b"))
        self.assertIn("2026-01-02, 2 cores, tutti 0.1.0 of 2 builds.", page)
        self.assertIn("medians of 2 rounds", page)
        self.assertIn("Of 1 cells (two schedules of one call, of which one took more than 20 % longer in every round) 1 have", page)

    def test_cells_in_the_wrong_order_have_the_median_times(self):
        page = agreement.page_of(rows_of("direct", 1, (9, 9, 8)) + rows_of("ring", 2, (4, 4, 1)))
        self.assertIn("| mapped | 4 | broadcast of 4 bytes | ring | direct | 4.0 / 9.0 | 2.0 / 1.0 |", page)


if __name__ == "__main__":
    unittest.main()
