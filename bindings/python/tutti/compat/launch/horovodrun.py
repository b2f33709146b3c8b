"""``horovodrun -np 4 [-H host1:2,host2:2] python script.py [arguments]``: a command on several ranks and hosts."""

import argparse
import os
import pathlib
import re
import shlex
import socket
import sys
from collections.abc import Sequence

from tutti.compat.launch import ssh

_PORT = "29500"  # torchrun's own
_HERE = ("localhost", "127.0.0.1")
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
# A word of python's options whose last letter takes a value, from the rest of the word or from the next: -W, -uXdev, -um.
_TAKES_VALUE = re.compile(r"-(?P<before>[^-cmWX]*)(?P<last>[cmWX])(?P<value>.*)", re.S)


def parser() -> argparse.ArgumentParser:
    """The options of horovodrun."""
    made = argparse.ArgumentParser(
        prog="horovodrun", description="Starts a command on several ranks, by torchrun; other hosts are reached by ssh "
        "without a password, and have python, the script and the folder at the same place.")
    made.add_argument("-np", "--num-proc", type=int, required=True, metavar="N", help="number of ranks")
    hosts = made.add_mutually_exclusive_group()
    hosts.add_argument("-H", "--hosts", metavar="HOST:SLOTS,…",
                       help="hosts, each with how many ranks it may have, filled in this order (default: this host)")
    hosts.add_argument("--hostfile",
                       "-hostfile",
                       metavar="FILE",
                       help="a file with a line `host slots=N` for each host")
    made.add_argument("-p",
                      "--ssh-port",
                      type=int,
                      metavar="PORT",
                      help="port of ssh on the hosts (default: ssh's own)")
    made.add_argument("--verbose", action="store_true", help="print the commands that are run")
    for name in ("--gloo", "--mpi"):
        made.add_argument(name, action="store_true", help="no effect: the script's backend is tutti")
    made.add_argument("command", nargs=argparse.REMAINDER, help="such as: python train.py --epochs 3")
    return made


def slots_of(text: str) -> list[tuple[str, int]]:
    """The hosts and slots in ``host1:4,host2:2``; ValueError says what is wrong."""
    hosts = []
    for word in text.split(","):
        host, _, slots = word.strip().partition(":")
        if not host or (slots and not slots.isdecimal()):
            raise ValueError(f"-H: {word!r} is not host or host:slots")
        hosts.append((host, int(slots or 1)))
    return hosts


def slots_in_file(path: str) -> list[tuple[str, int]]:
    """The hosts and slots in a file of lines ``host slots=N``; ValueError says what is wrong."""
    hosts = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        found = re.fullmatch(r"(?P<host>\S+)(?: slots=(?P<slots>\d+))?", " ".join(words))
        if found is None:
            raise ValueError(f"--hostfile: line {number} of {path} is {line!r}, and not `host slots=N`")
        hosts.append((found["host"], int(found["slots"] or 1)))
    return hosts


def fill(hosts: Sequence[tuple[str, int]], ranks: int) -> list[tuple[str, int]]:
    """How many ranks each host gets: slots are filled in order. ValueError if there are too few slots."""
    filled = []
    left = ranks
    for host, slots in hosts:
        if min(slots, left) > 0:
            filled.append((host, min(slots, left)))
            left -= min(slots, left)
    if left > 0:
        raise ValueError(f"-np {ranks}: the hosts have {ranks - left} slots together; give more hosts, or fewer ranks")
    return filled


def under_compat(command: Sequence[str]) -> list[str]:
    """The command, with ``python script.py`` made ``python -m tutti.compat script.py``; another program stays."""
    words = list(command)
    if not _PYTHON.fullmatch(os.path.basename(words[0])):
        return words
    place = 1
    while place < len(words) and words[place].startswith("-"):
        found = _TAKES_VALUE.fullmatch(words[place])
        if found is not None and found["last"] in "cm":  # ends python's options: -um train is -u -m train
            before = [f"-{found['before']}"] if found["before"] else []
            words[place:place + 1] = [*before, f"-{found['last']}", *([found["value"]] if found["value"] else [])]
            place += len(before)
            break
        takes_next = words[place] == "--check-hash-based-pycs" or (found is not None and not found["value"])
        place += 2 if takes_next else 1
    return [*words[:place], "-m", "tutti.compat", *words[place:]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the launcher on ``arguments`` (None: those of the command line); returns its exit status."""
    options = parser().parse_args(arguments)
    if not options.command:
        parser().error("expected a command, such as: horovodrun -np 4 python train.py")
    if options.num_proc < 1:
        parser().error(f"-np {options.num_proc}: give 1 or more")
    try:
        hosts = fill(_hosts(options), options.num_proc)
        ssh.check_meeting_place([host for host, _ in hosts])
    except (OSError, ValueError) as error:
        parser().error(str(error))
    for name in ("gloo", "mpi"):
        if getattr(options, name):
            print(f"horovodrun: --{name} has no effect: the script's backend is tutti", file=sys.stderr)
    per_host = ",".join(str(ranks) for _, ranks in hosts)
    front = [sys.executable, "-m", "tutti.compat.launch.horovod_rank", per_host, *under_compat(options.command)]
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    if len(hosts) == 1 and hosts[0][0] in (*_HERE, socket.gethostname()):
        command = [*torchrun, "--standalone", f"--nproc-per-node={per_host}", "--no-python", *front]
        if options.verbose:
            print(shlex.join(command), file=sys.stderr, flush=True)
        os.execv(command[0], command)  # this process becomes torchrun, which gets its signals
    torchrun += [f"--nnodes={len(hosts)}", f"--master-addr={hosts[0][0]}",
                 f"--master-port={os.environ.get('MASTER_PORT', _PORT)}"]
    commands = [ssh.HostCommand(host, options.ssh_port, [
        *torchrun, f"--node-rank={index}", f"--nproc-per-node={ranks}", "--no-python", *front
    ]) for index, (host, ranks) in enumerate(hosts)]
    return ssh.run_on_hosts(commands, ssh.environment_to_pass({}), options.verbose)


def _hosts(options: argparse.Namespace) -> list[tuple[str, int]]:
    if options.hosts is not None:
        return slots_of(options.hosts)
    if options.hostfile is not None:
        return slots_in_file(options.hostfile)
    return [("localhost", options.num_proc)]
