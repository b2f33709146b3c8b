#!/usr/bin/env python3
"""Pictures of `tutti plan --draw` are well-formed, bounded, and show what they say.

    tests/cli/plan/timelines.py TUTTI      (TUTTI: the command)
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TUTTI = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 2 << 20
NATIVE = "--native --native-latency 1e-5 --native-bandwidth 1e10"
PICTURES = (
    "all_reduce:ring --ranks 4 --messages",
    "all_reduce:ring --ranks 4 --bytes 64M --messages",
    "all_reduce:halving_doubling --ranks 6 --messages",
    "all_reduce:direct --ranks 4",
    "all_reduce:staged --ranks 4 --bytes 4M",
    f"all_reduce:native --ranks 4 {NATIVE}",
    "all_reduce:hierarchical --ranks 4 --ranks-per-node 2",
    "all_reduce --ranks 5 --bytes 4M --ranks-per-node 2 --cores 1",
    "bytegrad:codec=uint8_block --ranks 4 --bytes 4M --messages",
    "bytegrad --ranks 28 --bytes 64M",
    "qadam --step 100 --ranks 4",
    "decentralized --ranks 4",
    "broadcast:chain --ranks 4 --bytes 64M --messages",
    "all_reduce:ring --ranks 28 --bytes 64M --messages",
    "all_reduce:direct --ranks 28 --bytes 64M",
    "all_to_all:pairwise --ranks 32 --messages",
    "all_reduce:ring --ranks 40 --messages --rank 30",
    "barrier --ranks 5",
    "all_reduce --ranks 1",
    "all_reduce --ranks 4 --count 0",
    "send --ranks 8",
)


def attribute(element, name):
    return float(element.get(name))


def parsed(picture):
    return xml.etree.ElementTree.fromstring(picture)


def lanes_of(svg):
    return {int(g.get("data-rank")): g for g in svg.iter(f"{SVG}g") if g.get("class") == "lane"}


def arrows_of(svg):
    return [path for path in svg.iter(f"{SVG}path") if path.get("class") == "arrow"]


def ends_of(arrow):
    """Where an arrow begins and ends: the first and the last two of the numbers of its path."""
    x1, y1, *_, x2, y2 = (float(number) for number in re.findall(r"-?[0-9.]+", arrow.get("d")))
    return (x1, y1), (x2, y2)


def texts_of(svg):
    return [text.text or "" for text in svg.iter(f"{SVG}text")]


class Timelines(unittest.TestCase):
    def draw(self, arguments):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "plan.svg"
            ran = subprocess.run([TUTTI, "plan", *arguments.split(), "--quiet", "--draw", file],
                                 capture_output=True, text=True, timeout=120)
            self.assertEqual(ran.returncode, 0, f"{arguments}: {ran.stderr}")
            self.assertEqual(ran.stdout, "", arguments)
            return file.read_text(encoding="utf-8")

    def check(self, arguments):
        picture = self.draw(arguments)
        self.assertLess(len(picture), MOST_BYTES, arguments)
        svg = parsed(picture)
        self.assertEqual(svg.get("width"), "1200")
        lanes = lanes_of(svg)
        self.check_bars(lanes, arguments)
        self.check_arrows(svg, lanes, arguments)
        self.check_legend(svg, lanes)
        return svg

    def check_bars(self, lanes, arguments):
        for rank, lane in lanes.items():
            at = 0
            for bar in lane.findall(f"{SVG}g"):
                rects = [rect for rect in bar.findall(f"{SVG}rect") if rect.get("data-kind")]
                self.assertTrue(rects, arguments)
                x, width = attribute(rects[0], "x"), attribute(rects[0], "width")
                self.assertGreaterEqual(x, at - 0.11, f"{arguments}: bars of rank {rank} overlap")
                at = x + (width if width > 1.01 else 0)  # the thinnest bars are drawn wider than they are
                self.assertLessEqual(at, 1200 - 23, arguments)
                height = sum(attribute(rect, "height") for rect in rects)
                self.assertAlmostEqual(height, attribute(lane, "data-bottom") - attribute(lane, "data-top"), delta=0.5)

    def check_arrows(self, svg, lanes, arguments):
        arrows = arrows_of(svg)
        self.assertLessEqual(len(arrows), 400, arguments)
        for arrow in arrows:
            self.assertNotEqual(arrow.get("data-from"), arrow.get("data-to"), arguments)
            (x1, y1), (x2, y2) = ends_of(arrow)
            for end, y in (("data-from", y1), ("data-to", y2)):
                lane = lanes[int(arrow.get(end))]
                self.assertGreaterEqual(y, attribute(lane, "data-top"), arguments)
                self.assertLessEqual(y, attribute(lane, "data-bottom"), arguments)
            self.assertLessEqual(x1, x2, arguments)

    def check_legend(self, svg, lanes):
        used = {rect.get("data-kind") for lane in lanes.values() for rect in lane.iter(f"{SVG}rect")} - {None}
        legend = [rect.get("data-legend") for rect in svg.iter(f"{SVG}rect") if rect.get("data-legend")]
        self.assertEqual(sorted(legend), sorted(used))

    def test_pictures_are_what_they_say(self):
        for arguments in PICTURES:
            with self.subTest(arguments):
                self.check(arguments)

    def test_every_rank_of_a_small_world_has_a_lane(self):
        self.assertEqual(list(lanes_of(self.check("all_reduce:ring --ranks 28 --messages"))), list(range(28)))
        self.assertEqual(list(lanes_of(self.check("send --ranks 8"))), [0, 1])

    def test_large_worlds_have_sixteen_lanes_from_rank_on(self):
        for rank, first in ((0, 0), (300, 300), (999, 984)):
            svg = self.check(f"all_reduce:ring --ranks 1000 --bytes 64M --messages --rank {rank}")
            self.assertEqual(list(lanes_of(svg)), list(range(first, first + 16)))
            note = " ".join(texts_of(svg))
            self.assertIn(f"Drawn: ranks {first}…{first + 15} of 1000 (--rank R: from rank R on).", note)
            self.assertIn("Only the plans of 16 ranks were simulated", note)

    def test_all_ranks_are_simulated_where_that_takes_seconds(self):
        svg = self.check("all_reduce:ring --ranks 200 --bytes 1M --messages --rank 199")
        self.assertEqual(list(lanes_of(svg)), list(range(184, 200)))
        self.assertNotIn("were simulated", " ".join(texts_of(svg)))

    def test_a_ring_is_read_off_its_picture(self):
        svg = self.check("all_reduce:ring --ranks 4 --messages")
        texts = texts_of(svg)
        self.assertEqual(texts[0], "all_reduce:ring, 1 MiB of f32, 4 ranks")
        self.assertRegex(texts[1], r"^Predicted to take [0-9.]+ µs by schedule ring, as asked for\.$")
        self.assertIn("Assumed: messages take 0.30 µs + bytes / 16.0 GB/s", texts[2])
        self.assertIn("predicted time since the common start (µs)", texts)
        arrows = arrows_of(svg)
        self.assertEqual(len(arrows), 4 * 6)
        for arrow in arrows:
            self.assertEqual(int(arrow.get("data-to")), (int(arrow.get("data-from")) + 1) % 4)
        self.assertIn("message of 256 KiB, until its receiver turns to it", texts)

    def test_segments_are_folded(self):
        bars = [bar for bar in self.check("broadcast:chain --ranks 3 --bytes 64M --messages").iter(f"{SVG}title")]
        self.assertLess(len(bars), 60)
        self.assertTrue(any(" × recv" in bar.text and " × send" in bar.text for bar in bars))

    def test_a_picture_does_not_depend_on_the_machine(self):
        self.assertEqual(self.draw(PICTURES[0]), self.draw(PICTURES[0]))


if __name__ == "__main__":
    unittest.main()
