"""What bench/selection/agreement.py makes of its rows."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/selection"))
import agreement


def rows_of(schedule, predicted, times, **facts):
    return [{"round": turn, "links": "mapped", "ranks": 4, "collective": "broadcast", "schedule": schedule, "bytes": 4,
             "measured": us, "predicted": predicted, "version": "0.1.0", "program": "a", "date": "2026-01-02",
             "machine": "2 cores", "in_use": 0.01, **facts} for turn, us in enumerate(times)]


class Pages(unittest.TestCase):
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
