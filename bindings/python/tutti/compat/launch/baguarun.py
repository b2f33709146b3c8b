"""``baguarun --host_list host1:22,host2:22 --nproc_per_node=8 script.py [arguments]``: a script on several hosts."""

import argparse
import os
import sys
from collections.abc import Sequence

from tutti.compat.launch import ssh

_PORT = 29500  # torchrun's own


def parser() -> argparse.ArgumentParser:
    """The options of baguarun."""
    made = argparse.ArgumentParser(
        prog="baguarun",
        description="Starts a script on several hosts, which ssh reaches without a password. The first host "
        "is where the ranks meet. Python, the script and the folder are at the same place on all hosts.")
    made.add_argument("--host_list", default=os.environ.get("BAGUA_NODE_DOMAIN_NAMES"), metavar="HOST[:PORT],…",
                      help="hosts, with the ports of their ssh (default: $BAGUA_NODE_DOMAIN_NAMES)")
    made.add_argument("--ssh_port", type=int, default=os.environ.get("BAGUA_SSH_PORT"), metavar="PORT",
                      help="port of ssh where --host_list has none (default: $BAGUA_SSH_PORT, or ssh's own)")
    made.add_argument("--nproc_per_node", type=int, required=True, metavar="N", help="ranks on each host")
    made.add_argument("--master_port", type=int, default=_PORT, metavar="PORT",
                      help=f"port of the first host where the ranks meet (default: {_PORT})")
    made.add_argument("--no_python", action="store_true", help="the script is a program, and not run by python")
    made.add_argument("-x",
                      action="append",
                      default=[],
                      metavar="NAME[=VALUE]",
                      help="pass a variable of the environment, if it is set here, or with the value given")
    made.add_argument("--bagua_service_port", type=int, help="no effect: Tutti needs no service beside the ranks")
    made.add_argument("--enable_bagua_net",
                      action="store_true",
                      help="no effect: the backend tutti sends over TCP by itself")
    made.add_argument("script")
    made.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    return made


def hosts_of(text: str, port: int | None) -> list[tuple[str, int | None]]:
    """The hosts and ports in ``host1:22,host2``; ValueError says what is wrong."""
    hosts: list[tuple[str, int | None]] = []
    for word in text.split(","):
        host, _, own_port = word.strip().partition(":")
        if not host or (own_port and not own_port.isdecimal()):
            raise ValueError(f"--host_list: {word!r} is not host or host:port")
        hosts.append((host, int(own_port) if own_port else port))
    return hosts


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the launcher on ``arguments`` (None: those of the command line); returns its exit status."""
    options = parser().parse_args(arguments)
    if not options.host_list:
        parser().error("expected --host_list host1:port,host2:port, or $BAGUA_NODE_DOMAIN_NAMES")
    try:
        hosts = hosts_of(options.host_list, options.ssh_port)
        ssh.check_meeting_place([host for host, _ in hosts])
    except ValueError as error:
        parser().error(str(error))
    for name, given, instead in (("--bagua_service_port", options.bagua_service_port is not None,
                                  "Tutti needs no service beside the ranks"),
                                 ("--enable_bagua_net", options.enable_bagua_net,
                                  "the backend tutti sends over TCP by itself")):
        if given:
            print(f"baguarun: {name} has no effect: {instead}", file=sys.stderr)
    launcher = [sys.executable, "-m", "tutti.compat", "-m", "bagua.distributed.launch", f"--nnodes={len(hosts)}",
                f"--nproc_per_node={options.nproc_per_node}", f"--master_addr={hosts[0][0]}",
                f"--master_port={options.master_port}", *(["--no_python"] if options.no_python else [])]
    commands = [ssh.HostCommand(host, port, [*launcher, f"--node_rank={index}", options.script, *options.arguments])
                for index, (host, port) in enumerate(hosts)]
    return ssh.run_on_hosts(commands, ssh.environment_to_pass(_given(options.x)))


def _given(words: Sequence[str]) -> dict[str, str]:
    """The variables of -x. One that is not set here is left out: an empty text would replace what hosts have."""
    given = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if has_value:
            given[name] = value
        elif name in os.environ:
            given[name] = os.environ[name]
        else:
            print(f"baguarun: -x {name}: not set here, so that hosts keep theirs", file=sys.stderr)
    return given
