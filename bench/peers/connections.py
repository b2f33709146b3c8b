#!/usr/bin/env python3
"""all_reduce (f32, sum) of Tutti between two hosts over one and over several TCP connections (TUTTI_CONNECTIONS).

    bench/peers/connections.py [--connections 1 2 4 8] [-b 1M] [-e 4M] [-f 4] [--rounds 3] [--bin FOLDER] [--out FOLDER]

The hosts are network namespaces (bench/hosts/links.py; needs root). LINKS has their rates, delays and losses.
comparison.py describes the method. Writes connections.json and connections.md into docs/results.
"""

import argparse

import host_peers
import wire
from comparison import add_sizes, compare, groups_of
from host_peers import Hosts
from pages import SIZE, heading, need_earlier, result_of, show_us, table, write_page
from peers import Run

PAGE = "connections"
LABELS = ("rate", "delay_ms", "lost_of")
# Rate, delay in ms, and of how many packets one is lost (0: none). A link in one building; one to another city, without
# losses and with the losses of good and of bad lines; and a fast link.
LINKS = (("1gbit", 0.5, 0), ("1gbit", 5, 0), ("1gbit", 5, 10_000), ("1gbit", 5, 1_000), ("10gbit", 0.5, 0))


def runs(options):
    """Every (round, Run) in the order of measurement."""
    for rate, delay_ms, lost_of in LINKS:
        with Hosts(2, rate, delay_ms, options.bin / "delay_switch", lost_of) as hosts:
            labels = dict(zip(LABELS, (rate, delay_ms, lost_of)))
            for group in groups_of(options.begin, options.end, options.factor):
                for round_number in range(options.rounds):
                    yield round_number, Run("all_reduce", 2, group, options.factor, options.seconds, labels, hosts=hosts)


COLUMNS = {"rate": lambda entry: entry["rate"], "delay": lambda entry: f"{entry['delay_ms']:g} ms",
           "lost": lambda entry: f"1 of {entry['lost_of']:,}" if entry["lost_of"] else "none", **SIZE,
           "wire": lambda entry: show_us(entry["wire_us"])}


def page(result):
    yield "# One connection between two hosts, and several\n"
    yield from heading(result, "all_reduce in place on two hosts.", "", "connections.py", PAGE)
    yield "The columns after `wire` are the time over so many TCP connections of each two ranks (`TUTTI_CONNECTIONS`). Hosts"
    yield "and the time of the wire are those of [hosts.md](hosts.md). The delay is that of a packet on its way from host to"
    yield "host; an answer takes another. Where packets are lost, the one that is lost is drawn at random.\n"
    yield from table(result["summary"], result["versions"], COLUMNS, [])


def write_results(options, rows, stopped):
    result = result_of(options, PAGE, rows, stopped, LABELS, {})
    if not result:
        return
    for entry in result["summary"]:
        entry["wire_us"] = wire.time_us("all_reduce", 2, entry["rate"], entry["bytes"])
    write_page(options.out, PAGE, result, page(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser, end=4 << 20, rounds=3, begin=1 << 20)
    parser.add_argument("--connections", nargs="+", default=["1", "2", "4", "8"], metavar="N")
    host_peers.add_bin(parser)
    options = parser.parse_args()
    need_earlier(options, options.connections, PAGE)
    host_peers.need_programs(parser, options, ["tutti", "delay_switch"])
    programs = {number: host_peers.tutti(options.bin / "tutti", TUTTI_CONNECTIONS=number) for number in options.connections}
    compare(options, programs, runs(options), lambda *measured: write_results(options, *measured))


if __name__ == "__main__":
    main()
