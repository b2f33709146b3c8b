#!/usr/bin/env python3
"""Collectives (f32, sum) of Tutti, gloo, Open MPI and MPICH across hosts, one rank on each, side by side.

    bench/peers/hosts.py [--hosts 2 4] [--rate 100mbit 1gbit 10gbit unshaped] [--delay-ms 0 0.5]
                         [--collective NAME...] [-b 4] [-e 16M] [-f 4] [--longest-s 0.6] [--rounds 3] [--only NAME...]
                         [--schedule NAME] [--bin FOLDER] [--before PROGRAM] [--out FOLDER] [--merge] [--loaded]

The hosts are network namespaces of this machine, joined by a switch (bench/hosts/links.py; needs root): every host
sends and receives at the given rate, and every packet arrives the given delay later. comparison.py describes the method; host_peers.py has the settings of the
libraries. Writes hosts.json, hosts.md and hosts.svg into docs/results or, when all_reduce is not among what is measured,
hosts_collectives.json and hosts_collectives.md.
Stopped by Ctrl-C or SIGTERM, or by a library that fails, the script removes the hosts, writes what it has measured by
then, says so on the page, and exits with an error.
"""

import argparse
import itertools

import host_peers
import wire
from comparison import add_options, compare, groups_of, parse, ratio_of, show_bytes
from host_peers import MPIS, PEERS, SETTINGS, Hosts
from links import BURST_BYTES
from pages import COLLECTIVE, SIZE, heading, need_earlier, plot, result_of, show_us, table, time_of, where_behind, write_page
from peers import Run

PAGE = "hosts"
PLOTTED = "all_reduce"
RIVALS = {"best_peer": tuple(PEERS), "best_mpi": MPIS, "gloo": ("gloo",), "before": ("before",)}
# Sums whose messages have 8 bits for each element, compared with exact sums of the peers. Calls of both follow each
# other at once: the codec takes zeros, which buffers then hold, as long as other values.
CODEC = "uint8_block"
IN_CODEC = f"tutti-{CODEC}"
CODED = f"best_peer_in_{CODEC}"
LABELS = ("collective", "rate", "delay_ms")
NAMES = ("tutti", IN_CODEC, *PEERS)
# From this size on, a share of the wire's rate is shown: the burst that a shaper lets pass is small beside the data.
SHARE_FROM = 1 << 20


def runs(options):
    """Every (round, Run) in the order of measurement."""
    for ranks, rate, delay_ms in itertools.product(options.hosts, options.rate, options.delay_ms):
        with Hosts(ranks, rate, delay_ms, options.bin / "delay_switch") as hosts:
            for collective in options.collective:
                labels = dict(zip(LABELS, (collective, rate, delay_ms)))
                largest = min(options.end, wire.largest(collective, ranks, rate, options.longest_s))
                for group in groups_of(options.begin, largest, options.factor):
                    for round_number in range(options.rounds):
                        yield round_number, Run(collective, ranks, group, options.factor, options.seconds, labels,
                                                rewrite=collective != PLOTTED, hosts=hosts)


def show_time(entry, name):
    """The time, and the share of the wire's rate that it is."""
    time_us, wire_us = entry["time_us"].get(name), entry["wire_us"]
    if time_us is None or wire_us is None or entry["bytes"] < SHARE_FROM or name == IN_CODEC:
        return time_of(entry, name)
    return f"{show_us(time_us)} ({100 * wire_us / time_us:.0f} %)"


PLACE = {"hosts": lambda entry: str(entry["ranks"]), "rate": lambda entry: entry["rate"],
         "delay": lambda entry: f"{entry['delay_ms']:g} ms", **SIZE}
WIRE = {"wire": lambda entry: show_us(entry["wire_us"])}


def page(result, name):
    names = result["versions"]
    columns = {**PLACE, **WIRE}
    yield "# Collectives across hosts, beside their peers\n"
    yield from heading(result, "all_reduce and broadcast in place, and gloo's reduce; the others out of place.",
                       SETTINGS, "hosts.py", name)
    yield "Hosts are network namespaces of one machine, with one rank each; they share the cores, and what a host sends"
    yield "and receives passes a shaper (tbf) of the given rate. The delay is that of a packet on its way from host to host;"
    yield "an answer takes another. Packets with a delay go through a program that takes a share of a core, too. A size is"
    yield "the bytes of the larger of a rank's input and output; the root is rank 0. `wire` is the time that the bytes which"
    yield "the busiest link has to carry take at the link's rate, without delays, and without headers, which are 5 % more;"
    yield f"in parentheses is the share of the link's rate that a time is, from {show_bytes(SHARE_FROM)} on."
    yield f"Calls of {PLOTTED} follow each other at once. Each call of the others begins when all ranks have rewritten their"
    yield "inputs and met at a barrier: ranks that only send would otherwise run ahead, and the time of a call contain that of"
    yield "the calls before it. With a delay the ranks may leave that barrier one way apart, and stay so from call to call: a"
    yield "message then seems to take two ways, and one where they leave it together."
    yield f"A link that has rested meanwhile lets {show_bytes(BURST_BYTES)} pass at once: messages up to there take less"
    yield "than `wire`, and less than the model expects by which Tutti chooses its schedules."
    if IN_CODEC in names:
        yield f"`{IN_CODEC}`: all_reduce with `--codec {CODEC}`, which loses what 8 bits for each element lose;"
        yield f"`× {CODED.replace('_', ' ')}` is the time of the best peer, for exact sums, / this time."
    yield ""
    yield from where_behind("## Where Tutti is behind", result["summary"], names, {**COLLECTIVE, **columns}, RIVALS,
                            show_time)
    for collective in dict.fromkeys(e["collective"] for e in result["summary"]):
        yield f"\n## {collective}\n"
        if collective == PLOTTED:
            yield f"![Speed of {collective} against the size]({name}.svg)\n"
        own = [e for e in result["summary"] if e["collective"] == collective]
        yield from table(own, names, columns, [*RIVALS, CODED], show_time)


def page_of(options):
    return PAGE if PLOTTED in options.collective else f"{PAGE}_collectives"


def write_results(options, rows, stopped):
    name = page_of(options)
    result = result_of(options, name, rows, stopped, LABELS, RIVALS)
    if not result:
        return
    for entry in result["summary"]:
        entry["wire_us"] = wire.time_us(entry["collective"], entry["ranks"], entry["rate"], entry["bytes"])
        times = entry["time_us"]
        if IN_CODEC in times and (peers := [times[name] for name in PEERS if name in times]):
            entry[ratio_of("", CODED)] = min(peers) / times[IN_CODEC]
    write_page(options.out, name, result, page(result, name))
    if name == PAGE:
        plot(options.out, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, NAMES, end=16 << 20, rounds=3)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rate", nargs="+", default=["100mbit", "1gbit", "10gbit", "unshaped"], metavar="RATE",
                        help="rates of tc, or unshaped")
    parser.add_argument("--delay-ms", type=float, nargs="+", default=[0, 0.5], metavar="MS",
                        help="added to the way of every packet, in either direction")
    parser.add_argument("--longest-s", type=float, default=0.6,
                        help="sizes are left out for which the wire alone takes longer, because a size needs 10 calls")
    parser.add_argument("--schedule", help="of Tutti")
    host_peers.add_bin(parser)
    options = parse(parser)
    need_earlier(options, options.only, page_of(options))
    needed = ["tutti"] * any(name in options.only for name in ("tutti", IN_CODEC)) + ["delay_switch"] * any(options.delay_ms)
    host_peers.need_programs(parser, options, needed)
    programs = {**PEERS, "tutti": host_peers.tutti(options.bin / "tutti", options.schedule),
                IN_CODEC: host_peers.tutti(options.bin / "tutti", codec=CODEC)}
    programs = {name: programs[name] for name in options.only}
    if options.before:
        programs["before"] = host_peers.tutti(options.before.resolve(), options.schedule)
    compare(options, programs, runs(options), lambda *measured: write_results(options, *measured))


if __name__ == "__main__":
    main()
