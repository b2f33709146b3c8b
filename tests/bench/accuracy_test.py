"""What the times of bench/lightning/accuracy.py have in them."""

import pathlib
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/lightning"))
import accuracy


class TrainingClock(unittest.TestCase):
    def setUp(self):
        self.now = 0
        clock = unittest.mock.patch.object(accuracy.time, "perf_counter", lambda: self.now)
        clock.start()
        self.addCleanup(clock.stop)

    def takes(self, seconds):
        def work():
            self.now += seconds
        return work

    def seconds_with(self, **hooks):
        """The seconds of two epochs of 10 s each."""
        clock, strategy = accuracy.TrainingClock(), types.SimpleNamespace(**hooks)
        for _ in range(2):
            clock.start(strategy)
            self.now += 10
            clock.stop(strategy)
        return clock.seconds

    def test_waiting_for_slower_ranks_counts_where_an_epoch_ends(self):
        self.assertEqual(self.seconds_with(barrier=self.takes(1)), 22)

    def test_the_average_of_weights_before_a_validation_counts(self):
        self.assertEqual(self.seconds_with(barrier=self.takes(0), agree_on_weights=self.takes(3)), 26)


if __name__ == "__main__":
    unittest.main()
