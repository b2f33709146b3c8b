"""What the comparisons of bench/peers say of their rows: bounds of the wire, medians, ratios and pages."""

import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import compare
import comparison
import gloo_collectives
import hosts
import idle
import pages
import peers
import plot
import wire

# An MPI of one rank, whose all_reduce is wrong from its call WRONG_FROM on, and tells at its first call whether any
# memory of the process is to be on large pages.
MPI = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { MPI_FLOAT, MPI_DOUBLE, MPI_LONG, MPI_SUM, MPI_MAX, MPI_COMM_WORLD, MPI_MAX_LIBRARY_VERSION_STRING = 100 };
#define MPI_IN_PLACE NULL
#define MPI_STATUS_IGNORE NULL
#define MPI_Init(...) (void)0
#define MPI_Finalize() (void)0
#define MPI_Barrier(...) (void)0
#define MPI_Abort(world, code) exit(code)
#define MPI_Comm_rank(world, rank) (*(rank) = 0)
#define MPI_Comm_size(world, size) (*(size) = 1)
#define MPI_Get_library_version(text, length) (*(length) = sprintf(text, "one"))
#define MPI_Reduce_scatter_block(...) abort()
#define MPI_Allgather(...) abort()
#define MPI_Bcast(...) abort()
#define MPI_Gather(...) abort()
#define MPI_Scatter(...) abort()
#define MPI_Alltoall(...) abort()
#define MPI_Alltoallv(...) abort()
#define MPI_Sendrecv(...) abort()
static double MPI_Wtime(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}
static void MPI_Reduce(const void* in, void* out, int count, int type, int op, int root, int world) {
  memcpy(out, in, count * sizeof(double));
}
static void MPI_Allreduce(const void* in, void* out, int count, int type, int op, int world) {
  static int calls = 0;
  if (type != MPI_FLOAT) return;
  if (calls == 0) {
    char line[1000];
    FILE* maps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, maps)) {
      if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) fputs("large pages\\n", stderr);
    }
    fclose(maps);
  }
  if (++calls >= atoi(getenv("WRONG_FROM"))) *(float*)out = -1;
}
"""
FACTS = {"date": "2026-01-02", "machine": "2 cores", "in_use": 0.01}


def row(name, turn, us, nbytes=1 << 20, collective="all_reduce", **labels):
    return {"name": name, "library": "tutti" if name == "before" else name.partition("-")[0], "round": turn, "time_us": us,
            "bytes": nbytes, "ranks": 2, "collective": collective, "version": f"{name}\t1", "wrong": 0, **FACTS, **labels}


def on_hosts(*arguments, **labels):
    return row(*arguments, **{"rate": "1gbit", "delay_ms": 0, **labels})


class Idle(unittest.TestCase):
    def waited(self, *shares, loaded=False, wait_s=60):
        """What a script does beside programs that use `shares` of the processors, one share after the other."""
        with unittest.mock.patch.multiple(idle, share_in_use=unittest.mock.Mock(side_effect=shares), WAIT_S=wait_s), \
                contextlib.redirect_stderr(io.StringIO()):
            return idle.wait_until_idle(loaded)

    def test_a_script_waits_until_other_programs_have_ended(self):
        self.assertEqual(self.waited(0.9, 0.5, 0.02), 0.02)

    def test_beside_other_programs_nothing_is_measured_unless_told(self):
        with self.assertRaisesRegex(SystemExit, "50 % of the processors.*--loaded"):
            self.waited(0.5, wait_s=-1)
        self.assertEqual(self.waited(0.5, loaded=True), 0.5)

    def test_the_page_says_how_idle_the_machine_was(self):
        self.assertEqual(idle.line([0.012]), "Other programs used 1 % of the processors before the first run.")
        self.assertTrue(idle.line([0.4]).startswith("**On a loaded machine: other programs used 40 % "))
        self.assertIn("other programs used up to 40 % ", idle.line([0.01, 0.4, None]))
        for shares in ([None], [0.01, None]):
            self.assertIn("not measured", idle.line(shares))

    def test_a_program_that_computes_is_seen(self):
        with unittest.mock.patch.object(idle.time, "sleep", lambda seconds: sum(range(10_000_000))):
            self.assertGreater(idle.share_in_use(), 0)


class Wire(unittest.TestCase):
    def test_the_bound_follows_from_collective_world_and_rate(self):
        self.assertAlmostEqual(wire.time_us("all_reduce", 2, "1gbit", 125_000_000), 1e6)
        self.assertAlmostEqual(wire.time_us("all_reduce", 4, "100mbit", 4 << 20), 503316.48)
        self.assertAlmostEqual(wire.time_us("all_gather", 4, "10gbit", 1_000_000), 600)
        self.assertAlmostEqual(wire.time_us("broadcast", 4, "1gbit", 125_000), 1000)
        self.assertIsNone(wire.time_us("broadcast", 4, "unshaped", 125_000))

    def test_every_collective_has_a_bound(self):
        self.assertEqual(set(wire.SHARES), set(peers.COLLECTIVES))

    def test_the_largest_size_takes_the_seconds_that_are_given(self):
        self.assertEqual(wire.largest("all_reduce", 2, "100mbit", 0.5), 6_250_000)
        self.assertGreater(wire.largest("all_reduce", 2, "unshaped", 0.5), 1 << 40)


class Rows(unittest.TestCase):
    def test_rows_are_read_among_other_lines(self):
        self.assertEqual(peers.rows_in('warning: {\n{"bytes": 4}\n\n{"bytes": 8}\n'), [{"bytes": 4}, {"bytes": 8}])

    def test_a_program_that_prints_no_row_has_failed(self):
        for command in (["true"], ["sh", "-c", "echo broken >&2; exit 3"]):
            with self.assertRaises(SystemExit):
                peers.rows_of(command)

    def test_tutti_gets_the_sizes_of_a_run(self):
        run = peers.Run("all_gather", 2, [4, 64], 16, 0.5, {})
        command = " ".join(map(str, peers.tutti_command("tutti", run, "arena")))
        self.assertEqual(command, "tutti bench all_gather -b 4 -e 64 -f 16 --out-of-place --buffers arena "
                                  "--min-time 0.5 --json -")

    def test_rows_of_tutti_have_the_hash_of_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            builds = set()
            for number in range(2):
                program = pathlib.Path(folder, "tutti")
                program.write_text(f"#!/bin/sh\n# build {number}\necho 0.1.0\n")
                program.chmod(0o755)
                row, = peers.tutti_rows(program, '{"rows": [{"bytes": 4}]}')
                self.assertEqual(row["version"], "0.1.0")
                builds.add(row["program"])
        self.assertEqual(len(builds), 2)

    def test_gloo_is_measured_as_the_mpis_are(self):
        source = (peers.HERE / "mpi_collectives.c").read_text()
        for name, number in (("kWarmUps", gloo_collectives.WARM_UPS), ("kMinCalls", gloo_collectives.MIN_CALLS),
                             ("kMaxCalls", gloo_collectives.MAX_CALLS)):
            self.assertIn(f"{name} = {number},", source)

    def test_the_99th_percentile_is_that_of_tutti(self):
        for count, place in ((1, 1), (5, 5), (99, 99), (100, 99), (101, 100), (200, 198), (20000, 19800)):
            self.assertEqual(gloo_collectives.p99(list(range(1, count + 1))), place)

    def test_sizes_are_grouped(self):
        self.assertEqual(list(comparison.groups_of(4, 16 << 20, 64)), [[4, 256, 16384], [1 << 20]])
        self.assertEqual(list(comparison.groups_of(4, 3, 64)), [])
        self.assertEqual(comparison.parse_bytes("16M"), 16 << 20)


class Measuring(unittest.TestCase):
    def runs(self):
        try:
            for turn in range(2):
                yield turn, peers.Run("all_reduce", 2, [4], 4, 0.1, {"collective": "all_reduce"})
        finally:
            self.closed = True

    def measured(self, programs):
        rows = []
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                comparison.measure(self.runs(), programs, rows)
            except SystemExit:
                rows.append("stopped")
        return rows

    def test_the_order_rotates_and_rows_are_labelled(self):
        rows = self.measured({name: lambda run: [{"bytes": 4, "wrong": 0}] for name in "ab"})
        self.assertEqual([(r["round"], r["name"]) for r in rows], [(0, "a"), (0, "b"), (1, "b"), (1, "a")])
        self.assertEqual({r["collective"] for r in rows}, {"all_reduce"})

    def test_a_failure_keeps_earlier_rows_and_removes_hosts(self):
        def fail(run):
            raise SystemExit("failed")
        rows = self.measured({"a": lambda run: [{"bytes": 4, "wrong": 0}], "b": fail})
        self.assertEqual([r if r == "stopped" else r["name"] for r in rows], ["a", "stopped"])
        self.assertTrue(self.closed)

    def test_wrong_results_end_a_comparison_and_leave_the_rows_before(self):
        results = iter((0, 0, 3, 0))  # of a and b, and in the second round of b and a
        made = lambda run: [{"bytes": 4, "wrong": next(results)}]
        rows = self.measured({"a": made, "b": made})
        self.assertEqual([r if r == "stopped" else (r["round"], r["name"]) for r in rows], [(0, "a"), (0, "b"), "stopped"])

    def test_what_was_measured_before_a_stop_is_kept_with_the_reason(self):
        def stopped_by(error, rows=(1,)):
            def measure(into):
                into += rows
                raise error
            with contextlib.redirect_stderr(io.StringIO()):
                return comparison.measured_by(measure)
        self.assertEqual(stopped_by(SystemExit("wrong results of b: 3\nmore")), ([1], "wrong results of b: 3"))
        self.assertEqual(stopped_by(KeyboardInterrupt()), ([1], "by a signal"))
        self.assertEqual(comparison.measured_by(lambda rows: rows.append(1)), ([1], ""))
        with self.assertRaisesRegex(SystemExit, "why"):
            stopped_by(SystemExit("why"), rows=())

    def test_gloo_is_checked_again_after_its_calls_were_timed(self):
        same = lambda values: values
        made = argparse.Namespace(count_wrong=unittest.mock.Mock(side_effect=(0, 2)), warm_up=lambda seconds: 5, bytes=4, size=2,
                                  timed_call=lambda: 1e-6, slowest=same, data=unittest.mock.Mock(), dist=unittest.mock.Mock(),
                                  torch=argparse.Namespace(__version__="2"))
        self.assertEqual(gloo_collectives.Measurement.row(made, 1)["wrong"], 2)


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class ProgramOfTheMpis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        pathlib.Path(folder.name, "mpi.h").write_text(MPI)
        cls.program = pathlib.Path(folder.name, "program")
        subprocess.run(["cc", "-std=gnu11", "-I", folder.name, peers.HERE / "mpi_collectives.c", "-o", cls.program], check=True)

    def measured(self, nbytes, wrong_from=1 << 30):
        run = subprocess.run([self.program, "all_reduce", "one", "shm", "0.001", str(nbytes)], check=True, capture_output=True,
                             text=True, env={"WRONG_FROM": str(wrong_from)})
        return json.loads(run.stdout), run.stderr

    def test_results_are_checked_before_and_after_the_calls_that_are_timed(self):
        for wrong_from, wrong in ((1, 2), (2, 1), (1 << 30, 0)):
            self.assertEqual(self.measured(4, wrong_from)[0]["wrong"], wrong)

    @unittest.skipUnless(os.path.exists("/sys/kernel/mm/transparent_hugepage"), "this kernel has no large pages")
    def test_large_buffers_are_to_be_on_large_pages(self):
        for nbytes, large in ((1 << 20, False), (2 << 20, True)):
            row, told = self.measured(nbytes)
            self.assertEqual("large pages" in told, large)
            self.assertTrue(row["large_pages"])


class Summary(unittest.TestCase):
    RIVALS = {"best_mpi": ("x", "y"), "gloo": ("gloo",), "before": ("before",)}

    def summary(self, rows):
        return comparison.summarize(rows, ("collective",), self.RIVALS)

    def test_ratios_are_within_rounds(self):
        rows = [row("tutti", 0, 10), row("x", 0, 20), row("y", 0, 15), row("tutti", 1, 100), row("x", 1, 100),
                row("y", 1, 300)]
        entry, = self.summary(rows)
        self.assertEqual(entry["time_us"], {"tutti": 55, "x": 60, "y": 157.5})
        self.assertEqual(entry["times_faster_than_best_mpi"], 1.25)  # the median of 1.5 and 1
        self.assertEqual(entry["times_faster_than_best_mpi_in_rounds"], [1, 1.5])
        self.assertNotIn("times_faster_than_gloo", entry)

    def test_ordinary_memory_is_compared_too(self):
        entry, = self.summary([row("tutti", 0, 10), row("tutti-private", 0, 30), row("x", 0, 20), row("y", 0, 15),
                               row("before", 0, 12)])
        self.assertEqual((entry["times_faster_than_best_mpi"], entry["private_times_faster_than_best_mpi"]), (1.5, 0.5))
        self.assertEqual(entry["times_faster_than_before"], 1.2)
        self.assertNotIn("private_times_faster_than_before", entry)
        self.assertNotIn("private_times_faster_than_gloo", entry)

    def test_a_round_that_lacks_a_rival_does_not_count(self):
        rows = [row("tutti", 0, 10), row("x", 0, 20), row("y", 0, 30), row("tutti", 1, 10), row("x", 1, 90)]
        self.assertEqual(self.summary(rows)[0]["times_faster_than_best_mpi"], 2)

    def test_of_equal_sizes_the_last_counts(self):
        entry, = self.summary([row("tutti", 0, 10, 8), row("tutti", 0, 12, 8)])
        self.assertEqual(entry["time_us"], {"tutti": 12})


class Pages(unittest.TestCase):
    def written(self, write, rows, stopped="", earlier=None):
        """The files of a comparison; `earlier` has the contents of files that were there before, by name."""
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
            folder = pathlib.Path(name)
            for file, text in (earlier or {}).items():
                (folder / file).write_text(text)
            collectives = [row["collective"] for row in rows] or ["all_reduce"]
            write(argparse.Namespace(out=folder, merge=earlier is not None, collective=collectives), rows, stopped)
            return {path.name: path.read_text() for path in folder.iterdir()}

    def setUp(self):
        for module in (hosts, compare):
            module.plot = lambda folder, page: None
        self.addCleanup(lambda: [setattr(module, "plot", pages.plot) for module in (hosts, compare)])

    def test_hosts_page_has_the_wire_and_where_tutti_is_behind(self):
        rows = [on_hosts("tutti", 0, 10000), on_hosts("gloo", 0, 8738), on_hosts("tutti", 0, 20, 4),
                on_hosts("gloo", 0, 200, 4), on_hosts("tutti", 0, 5, rate="unshaped", delay_ms=0.5),
                on_hosts("gloo", 0, 1, rate="unshaped", delay_ms=0.5)]
        files = self.written(hosts.write_results, rows)
        page = files["hosts.md"]
        behind, everything = page.split("## all_reduce")
        lines = [line for line in behind.splitlines() if line.startswith("| all_reduce")]
        self.assertEqual(lines[0], "| all_reduce | 2 | unshaped | 0.5 ms | 1 MB | — | 5.00 | 1.00 | 0.20 | 0.20 |")
        self.assertEqual(lines[1], "| all_reduce | 2 | 1gbit | 0 ms | 1 MB | 8,389 | 10,000 (84 %) | 8,738 (96 %) "
                                   "| 0.87 | 0.87 |")
        self.assertEqual(len(lines), 2)
        self.assertIn("Other programs used 1 % of the processors", behind)
        self.assertIn("| 2 | 1gbit | 0 ms | 4 B | 0.03 | 20 | 200 | 10.00 | 10.00 |", everything)
        written = json.loads(files["hosts.json"])
        self.assertEqual(written["rows"], rows)
        self.assertEqual([entry["wire_us"] for entry in written["summary"]], [8388.608, 0.032, None])

    def test_sums_in_a_codec_are_compared_with_exact_sums_of_the_best_peer(self):
        rows = [on_hosts("tutti", 0, 9000), on_hosts("tutti-uint8_block", 0, 2500), on_hosts("gloo", 0, 10000)]
        page = self.written(hosts.write_results, rows)["hosts.md"]
        self.assertIn("| × best peer | × gloo | × best peer in uint8 block |", page)
        self.assertIn("| 9,000 (93 %) | 2,500 | 10,000 (84 %) | 1.11 | 1.11 | 4.00 |", page)
        self.assertIn("Nowhere.", page)  # where Tutti is behind

    def test_a_page_explains_what_it_has(self):
        rows = {name: [on_hosts(column, 0, 9000) for column in ("tutti", name)]
                for name in ("tutti-uint8_block", "gloo")}
        pages_of = {name: self.written(hosts.write_results, of)["hosts.md"] for name, of in rows.items()}
        for name, text in (("tutti-uint8_block", "`tutti-uint8_block`: all_reduce with"), ("gloo", pages.OF_GLOO)):
            for other, page in pages_of.items():
                self.assertEqual(text in page, other == name, (text, other))

    def test_a_page_says_which_memory_tutti_is_behind_in(self):
        rows = [row(name, 0, us, nbytes, rewrite=False)
                for nbytes, times in ((4, (3, 4, 2)), (1 << 20, (1, 3, 2)), (4 << 20, (1, 2, 3)))
                for name, us in zip(("tutti", "tutti-private", "mpich"), times)]
        page = self.written(compare.write_results, rows)["all_reduce.md"]
        behind, everything, *_ = page.split("### All sizes")
        lines = [line for line in behind.splitlines() if line.startswith("| 2")]
        self.assertEqual(lines, ["| 2 | 4 B | tutti, tutti-private | 3.00 | 4.00 | 2.00 | 0.67 | 0.50 |",
                                 "| 2 | 1 MB | tutti-private | 1.00 | 3.00 | 2.00 | 2.00 | 0.67 |"])
        self.assertIn("| ranks | size | tutti | tutti-private | mpich | × best mpi | private × best mpi |", everything)

    def test_a_page_says_that_it_is_incomplete_and_what_is_older(self):
        rows = [on_hosts("tutti", 0, 1), on_hosts("before", 0, 2)]
        page = self.written(hosts.write_results, rows, stopped="by a signal")["hosts.md"]
        self.assertIn("**Incomplete**: the measurement was stopped (by a signal).", page)
        self.assertIn("`before` is an older build", page)
        self.assertIn("No other library was measured.", page)  # where Tutti is behind
        self.assertNotIn("Nowhere.", page)

    def test_where_tutti_is_behind_has_what_is_a_little_slower(self):
        rows = [row(name, 0, us, rewrite=False) for name, us in (("tutti", 1000), ("mpich", 997), ("gloo", 1000))]
        behind = self.written(compare.write_results, rows)["all_reduce.md"].split("### All sizes")[0]
        self.assertIn("| 2 | 1 MB | 1,000 | 997 | 1,000 | 0.997 | 1.00 |", behind)

    def test_a_page_says_on_which_pages_of_memory_buffers_lay(self):
        def page_of(*asked):
            rows = [row(name, 0, 1, 4 << place, rewrite=False, **({"large_pages": True} if large and name == "mpich" else {}))
                    for place, large in enumerate(asked) for name in ("tutti", "mpich")]
            return self.written(compare.write_results, rows)["all_reduce.md"]
        for asked, said in (((False,), pages.SMALL_PAGES), ((True, True), pages.LARGE_PAGES),
                            ((True, False), pages.SOME_LARGE_PAGES)):
            self.assertIn(f" {said}\n", page_of(*asked))
        self.assertNotIn("pages of", self.written(compare.write_results, [row("tutti", 0, 1, rewrite=False)])["all_reduce.md"])

    def test_a_cell_that_is_not_wholly_measured_keeps_its_earlier_rows(self):
        first = [row(name, turn, us, rewrite=False) for turn in range(2) for name, us in (("tutti", 20), ("mpich", 10))]
        files = self.written(compare.write_results, first)
        now = [row(name, turn, 1, rewrite=False) for turn, name in ((0, "tutti"), (0, "mpich"), (1, "tutti"))]
        for rows in (now[:1], now):  # stopped in the first round, and in the second one
            kept = self.written(compare.write_results, rows, stopped="by a signal", earlier=files)
            self.assertEqual(json.loads(kept["all_reduce.json"])["rows"], first)
        kept = self.written(compare.write_results, now[:2], earlier=files)
        self.assertEqual(json.loads(kept["all_reduce.json"])["rows"], now[:2])

    def test_an_older_build_need_not_be_measured_again(self):
        first = [row(name, 0, 1, rewrite=False) for name in ("tutti", "before")]
        files = self.written(compare.write_results, first)
        now = [row("tutti", 0, 2, rewrite=False)]
        self.assertEqual(json.loads(self.written(compare.write_results, now, earlier=files)["all_reduce.json"])["rows"], now)

    def test_a_page_that_was_incomplete_stays_so(self):
        rows = [row("tutti", 0, 1, rewrite=False)]
        files = self.written(compare.write_results, rows, stopped="by a signal")
        for now in ([], [row("tutti", 0, 1, nbytes=4, rewrite=False)]):
            self.assertIn("**Incomplete**: the measurement was stopped (by a signal).",
                          self.written(compare.write_results, now, earlier=files)["all_reduce.md"])
        self.assertNotIn("Incomplete", self.written(compare.write_results, rows)["all_reduce.md"])

    def test_rows_measured_now_stand_for_those_of_the_same_cell(self):
        first = [row(name, turn, us, nbytes, ranks=ranks, rewrite=False) for ranks in (2, 4) for nbytes in (4, 1 << 20)
                 for turn in range(3) for name, us in (("tutti", 20), ("mpich", 10))]
        now = [row(name, turn, us, ranks=2, rewrite=False, date="2026-03-01", in_use=0.2) for turn in range(2)
               for name, us in (("tutti", 1), ("mpich", 2), ("gloo", 3))]
        files = self.written(compare.write_results, first)
        files = self.written(compare.write_results, now, earlier=files)
        page = files["all_reduce.md"].partition("### All sizes")[2]
        self.assertEqual([line for line in page.splitlines() if line.startswith("| 2") or line.startswith("| 4")],
                         ["| 2 | 4 B | 2026-01-02, 2 cores | 20 | 10 | — | 0.50 | — |",
                          "| 2 | 1 MB | 2026-03-01, 2 cores | 1.00 | 2.00 | 3.00 | 2.00 | 3.00 |",
                          "| 4 | 4 B | 2026-01-02, 2 cores | 20 | 10 | — | 0.50 | — |",
                          "| 4 | 1 MB | 2026-01-02, 2 cores | 20 | 10 | — | 0.50 | — |"])
        self.assertIn("2026-01-02 to 2026-03-01, 2 cores. Means over the calls, medians of 2 to 3 interleaved rounds",
                      files["all_reduce.md"])
        self.assertIn("**On a loaded machine: other programs used up to 20 %", files["all_reduce.md"])
        dates = [entry["date"] for entry in json.loads(files["all_reduce.json"])["rows"]]
        self.assertEqual(dates, 6 * ["2026-01-02"] + 6 * ["2026-03-01"] + 12 * ["2026-01-02"])
        self.assertEqual(self.written(compare.write_results, [], earlier=files), files)  # --rounds 0

    def test_earlier_rows_have_the_date_of_their_file(self):
        facts = ("date", "machine", "in_use")
        rows = [{k: v for k, v in row("tutti", 0, 1, rewrite=False).items() if k not in facts}]
        earlier = {"all_reduce.json": json.dumps({"date": "2025-01-01", "machine": "a PDP, load 3", "rows": rows})}
        page = self.written(compare.write_results, [], earlier=earlier)["all_reduce.md"]
        self.assertIn("2025-01-01, a PDP, load 3. Means", page)
        self.assertIn("What other programs used of the processors before the first run was not measured.", page)

    def test_earlier_rows_that_cannot_be_kept_end_a_script_before_it_measures(self):
        old = {"date": "2025-01-01", "machine": "a PDP", "rows": [{"name": "tutti", "p50_us": 1}]}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(compare, "compare") as measured:
            pathlib.Path(folder, "collectives.json").write_text(json.dumps(old))
            for collective, ends in (("broadcast", True), ("all_reduce", False)):
                command = ["compare.py", "--collective", collective, "--merge", "--out", folder]
                with unittest.mock.patch.object(sys, "argv", command):
                    if ends:
                        with self.assertRaisesRegex(SystemExit, "collectives.json: 1 rows have medians"):
                            compare.main()
                    else:
                        compare.main()
                self.assertEqual(measured.called, not ends)

    def test_libraries_that_are_left_out_end_a_script_before_it_measures(self):
        earlier = {"date": "2025-01-01", "machine": "a PDP", "rows": [row("mpich", 0, 1), row("before", 0, 1)]}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(compare, "compare") as measured:
            pathlib.Path(folder, "all_reduce.json").write_text(json.dumps(earlier))
            command = ["compare.py", "--merge", "--out", folder]
            with unittest.mock.patch.object(sys, "argv", [*command, "--only", "tutti"]), \
                    self.assertRaisesRegex(SystemExit, "all_reduce.json has rows of mpich: measure the same libraries"):
                compare.main()
            self.assertFalse(measured.called)
            for more in (["--only", "tutti", "mpich"], ["--only", "tutti", "--rounds", "0"]):
                with unittest.mock.patch.object(sys, "argv", [*command, *more]):
                    compare.main()
            self.assertEqual(measured.call_count, 2)

    def test_ratios_have_the_least_and_the_most_of_single_rounds(self):
        rows = [row(name, turn, us, rewrite=False) for turn, times in enumerate(((1, 10, 900), (1, 2, 300), (1, 0.5, 300)))
                for name, us in zip(("tutti", "mpich", "gloo"), times)]
        page = self.written(compare.write_results, rows)["all_reduce.md"]
        self.assertIn("| 1.00 | 2.00 | 300 | 2.00 (0.50 to 10.00) | > 100 |", page)
        self.assertIn(pages.OF_RATIOS, page)

    def test_a_page_says_what_the_libraries_were_set_to(self):
        for write, rows, name, settings in (
                (compare.write_results, [row("tutti", 0, 1, rewrite=False)], "all_reduce.md", peers.SETTINGS),
                (hosts.write_results, [on_hosts("tutti", 0, 1)], "hosts.md", hosts.SETTINGS)):
            page = self.written(write, rows)[name]
            self.assertIn(settings, page)
            self.assertIn(pages.OF_TUTTI, page)

    def test_a_page_says_that_some_calls_of_gloo_are_far_longer_than_others(self):
        for p50_us, text in ((20, "gloo's means are up to 3 times its medians"), (59, "")):
            page = self.written(compare.write_results, [row("gloo", 0, 60, rewrite=False, p50_us=p50_us)])["all_reduce.md"]
            self.assertEqual("gloo's means are" in page, bool(text))
            self.assertIn(text, page)

    def test_a_page_says_which_builds_of_tutti_were_measured(self):
        def page_of(*programs):
            rows = [row("tutti", 0, 1, 4 << place, rewrite=False, library="tutti", **({"program": program} if program else {}))
                    for place, program in enumerate(programs)]
            return self.written(compare.write_results, rows)["all_reduce.md"]
        self.assertIn("tutti: tutti 1.\n", page_of("a", "a"))
        self.assertIn("tutti: tutti 1 of 2 builds.\n", page_of("a", "b"))
        self.assertNotIn(pages.UNKNOWN_BUILD, page_of("a", "b"))
        self.assertIn(pages.UNKNOWN_BUILD, page_of("a", None))

    def test_a_picture_that_cannot_be_drawn_is_an_error_and_leaves_no_earlier_one(self):
        with tempfile.TemporaryDirectory() as name:
            picture = pathlib.Path(name, "all_reduce.svg")
            picture.touch()
            with unittest.mock.patch.object(pages, "PYTHON", pathlib.Path("/bin/false")), \
                    self.assertRaisesRegex(SystemExit, "all_reduce.svg could not be drawn"):
                pages.plot(picture.parent, "all_reduce")
            self.assertFalse(picture.exists())
            picture.touch()
            with unittest.mock.patch.object(pages, "PYTHON", pathlib.Path("/nowhere")), contextlib.redirect_stderr(io.StringIO()):
                pages.plot(picture.parent, "all_reduce")
            self.assertFalse(picture.exists())

    def test_a_picture_names_all_that_is_measured(self):
        for name in (*hosts.NAMES, *peers.PEERS):
            self.assertIn(name, plot.NAMES)
            self.assertIn(name, plot.STYLES)

    def test_a_picture_names_every_machine_and_that_the_buffer_is_the_same(self):
        result = {"machine": "2 cores of A, Linux 1; 2 cores of A, Linux 2; 4 cores of B, Linux 1", "date": "2026-01-02"}
        title = plot.title_of({**result, "summary": [{"rewrite": False}]})
        self.assertIn("the same buffer again and again", title)
        self.assertIn("2 cores of A; 4 cores of B, 2026-01-02", title)
        self.assertNotIn("the same buffer", plot.title_of({**result, "summary": [{}]}))

    def test_all_reduce_and_the_other_collectives_have_pages_of_their_own(self):
        rows = [row(name, 0, us, collective=collective, rewrite=False)
                for name, us in (("tutti", 2), ("gloo", 1)) for collective in ("all_reduce", "gather")]
        files = self.written(compare.write_results, rows)
        self.assertEqual(set(files), {"all_reduce.json", "all_reduce.md", "collectives.json", "collectives.md"})
        self.assertIn("| 2 | 1 MB | 2.00 | 1.00 | 0.50 |", files["all_reduce.md"])
        self.assertIn("| gather | 2 | 1 MB | 2.00 | 1.00 | 0.50 |", files["collectives.md"])


if __name__ == "__main__":
    unittest.main()
