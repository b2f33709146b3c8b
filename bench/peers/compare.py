#!/usr/bin/env python3
"""Collectives (f32, sum) of Tutti, Open MPI, MPICH and gloo on this machine, side by side.

    bench/peers/compare.py [--collective NAME...] [--ranks 2 4 8] [-b 4] [-e 256M] [-f 4] [--rounds 5] [--only NAME...]
                           [--before PROGRAM] [--out FOLDER] [--merge] [--loaded]

comparison.py describes the method. Writes into docs/results: all_reduce.json, all_reduce.md and all_reduce.svg
when all_reduce was measured, collectives.json and collectives.md when others were.
Stopped by Ctrl-C or SIGTERM, or by a library that fails, the script writes what it has measured by then, says so on the
page, and exits with an error.
"""

import argparse

from comparison import add_options, compare, groups_of, parse, show_bytes
from pages import COLLECTIVE, RANKS, SIZE, heading, need_earlier, plot, result_of, table, where_behind, write_page
from peers import MPIS, PEERS, SETTINGS, Run, tutti

LARGE = 64 << 10  # bytes from which on the page of the collectives lists where Tutti is behind
RIVALS = {"best_mpi": MPIS, "gloo": ("gloo",), "before": ("before",)}
BUFFERS = ("`tutti` has its buffers in the shared arena, `tutti-private` in ordinary memory, as the other libraries have; the "
           "ratios that begin with `private` are those of `tutti-private`.")


def runs(options):
    """Every (round, Run) in the order of measurement."""
    for collective in options.collective:
        for ranks in options.ranks:
            for rewrite in (False, True) if collective == "all_reduce" else (False,):
                labels = {"collective": collective, "rewrite": rewrite}
                for group in groups_of(options.begin, options.end, options.factor):
                    for round_number in range(options.rounds):
                        yield round_number, Run(collective, ranks, group, options.factor, options.seconds, labels,
                                                rewrite)


def all_reduce_page(result):
    names = result["versions"]
    columns = {**RANKS, **SIZE}
    yield "# all_reduce beside its peers\n"
    yield from heading(result, f"in place. {BUFFERS}", SETTINGS, "compare.py", "all_reduce")
    yield "![Speed of all_reduce against the size, the same buffer again](all_reduce.svg)\n"
    for rewrite in (False, True):
        entries = [e for e in result["summary"] if e["rewrite"] == rewrite]
        yield "## Every rank rewrites its whole buffer before each call" if rewrite else "## The same buffer again"
        yield from where_behind("\n### Where Tutti is behind", entries, names, columns, RIVALS)
        yield "\n### All sizes\n"
        yield from table(entries, names, columns, RIVALS)
        yield ""


def collectives_page(result):
    names = result["versions"]
    yield "# Collectives beside their peers\n"
    yield from heading(result, "out of place, but broadcast in place, as MPI has it, and gloo's reduce, as gloo has it. "
                       + BUFFERS, SETTINGS, "compare.py", "collectives")
    yield "The same buffers are used again in every call; the root is rank 0. A size is the bytes of the larger of a"
    yield "rank's input and output. [all_reduce](all_reduce.md) has a page of its own.\n"
    # A size that is no multiple of the ranks is measured as the next smaller multiple.
    large = [e for e in result["summary"] if e["bytes"] > LARGE - 4 * e["ranks"]]
    yield from where_behind(f"## Where Tutti is behind, from {show_bytes(LARGE)}", large, names,
                            {**COLLECTIVE, **RANKS, **SIZE}, RIVALS)
    for collective in dict.fromkeys(e["collective"] for e in result["summary"]):
        yield f"\n## {collective}\n"
        yield from table([e for e in result["summary"] if e["collective"] == collective], names, {**RANKS, **SIZE},
                         RIVALS)


PAGES = {"all_reduce": all_reduce_page, "collectives": collectives_page}


def page_with(collective):
    return "all_reduce" if collective == "all_reduce" else "collectives"


def write_results(options, rows, stopped):
    for page in sorted(set(map(page_with, options.collective))):
        own = [row for row in rows if page_with(row["collective"]) == page]
        if result := result_of(options, page, own, stopped, ("collective", "rewrite"), RIVALS):
            write_page(options.out, page, result, PAGES[page](result))
            if page == "all_reduce":
                plot(options.out, page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, PEERS, end=256 << 20, rounds=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    options = parse(parser)
    need_earlier(options, options.only, *map(page_with, options.collective))
    programs = {name: PEERS[name] for name in options.only}
    if options.before:
        programs["before"] = tutti("arena", options.before.resolve())
    compare(options, programs, runs(options), lambda *measured: write_results(options, *measured))


if __name__ == "__main__":
    main()
