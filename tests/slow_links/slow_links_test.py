"""Ranks on hosts whose links are so slow that much is under way when something ends: slow_links_test.py PROGRAM.

Skipped (exit code 77) where the system does not let a test make network namespaces.
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/hosts"))
from links import Hosts, make_secret, reason_for_no_hosts, run_ranks

SKIPPED = 77
PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
LIMIT_S = 60


class SlowLinks(unittest.TestCase):
    def run_on(self, hosts, rate, what):
        with Hosts(hosts, rate) as made, tempfile.TemporaryDirectory() as folder:
            secret = make_secret(pathlib.Path(folder))
            ranks = range(hosts)
            run_ranks([made.command(rank, [PROGRAM, what]) for rank in ranks],
                      [made.environment(rank, secret) for rank in ranks], LIMIT_S)

    def test_what_was_sent_comes_though_its_sender_has_left_the_group(self):
        self.run_on(2, "20mbit", "leave_the_group")

    def test_what_was_sent_comes_though_its_sender_has_left(self):
        self.run_on(2, "20mbit", "leave_the_world")

    def test_what_was_sent_comes_though_it_takes_seconds(self):
        self.run_on(2, "10mbit", "leave_a_backlog")

    def test_a_group_that_is_given_up_leaves_a_long_message_alone(self):
        self.run_on(2, "20mbit", "give_up_a_group")

    def test_an_answer_behind_a_long_message_is_awaited(self):
        self.run_on(2, "10mbit", "give_up_a_sender")

    def test_a_short_message_overtakes_a_long_one(self):
        self.run_on(2, "20mbit", "overtake_a_long_message")

    def test_survivors_of_a_long_broadcast_have_not_lost_each_other(self):
        self.run_on(3, "20mbit", "survive_a_broadcast")


if __name__ == "__main__":
    if reason := reason_for_no_hosts():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
