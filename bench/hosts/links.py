"""Hosts on this machine: network namespaces joined by a switch, every host on a link of its own, of a given speed.

Needs root and iproute2. All namespaces, links and processes of the hosts are removed when the context ends; `ip netns`
lists what a killed process left behind.
"""

import contextlib
import os
import re
import secrets
import signal
import subprocess
import tempfile
import time

# The bytes that the shaper tbf lets pass at once: more than a segment of 64 KB, which the kernel hands down whole.
BURST_BYTES = 128 << 10
UNSHAPED = "unshaped"
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# The time that a packet may wait in the queue of a link before it is dropped.
QUEUE_MS = 50
LINK_LIMIT_S = 30


def bits_per_second(rate):
    """Of a rate as tc has it; None: unshaped."""
    match = re.fullmatch(r"([\d.]+)([a-z]+)", rate)
    return float(match[1]) * UNITS[match[2]] if match else None


def ip(*arguments, netns=None):
    command = ["ip"] + (["-n", netns] if netns else []) + list(arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_secret(folder):
    """A file with the secret of a job."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    return secret


def end_orderly():
    """Has SIGTERM and SIGHUP end this script as Ctrl-C does, so that every `finally` removes what the script has made."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def undisturbed():
    """Has a signal that ends this script wait for the end of a with statement, in which the script starts a process.

    A script that ended while the process runs already, and before the script knows the process, would leave it behind.
    """
    received = []
    handlers = _handle_ends(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
                                          lambda number, _: received.append(number)))
    try:
        yield
    finally:
        _handle_ends(handlers)
        for number in received:
            signal.raise_signal(number)


def _handle_ends(handlers):
    """Sets the handlers of signals, {number: handler}, all before the first such signal comes; returns the old ones."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
    try:
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def killed_at_end():
    """Yields a function that starts a process as subprocess.Popen does.

    The end of the with statement kills the processes that the function has started, and waits for their ends.
    """
    processes = []

    def start(*command, **options):
        with undisturbed():
            processes.append(subprocess.Popen(*command, **options))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in processes:
            process.wait()


def run_ranks(commands, environments, limit_s, until=lambda: False, **options):
    """Runs a command for each rank until all have ended well, or until `until()`, when the ranks are killed.

    RuntimeError when a rank has failed, or the ranks take longer than `limit_s`, with what the ranks wrote to standard
    error; then, too, all ranks are killed.
    """
    end_orderly()
    with contextlib.ExitStack() as stack:
        start = stack.enter_context(killed_at_end())
        errors = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        ranks = [start(command, env=environment, stderr=error, **options)
                 for command, environment, error in zip(commands, environments, errors)]
        deadline = time.monotonic() + limit_s
        while True:
            codes = [rank.poll() for rank in ranks]
            if failed := [rank for rank, code in enumerate(codes) if code]:
                raise _failure({rank: f"ended with exit code {codes[rank]}" for rank in failed}, errors)
            if None not in codes or until():
                return
            if time.monotonic() > deadline:
                raise _failure({rank: f"did not end within {limit_s} s" for rank, code in enumerate(codes) if code is None},
                               errors)
            time.sleep(0.05)


def _failure(what_by_rank, errors):
    text = []
    for rank, what in what_by_rank.items():
        errors[rank].seek(0)
        text.append(f"rank {rank} {what}\n{errors[rank].read()}".strip())
    return RuntimeError("\n".join(text))


class Hosts:
    """The hosts of `with Hosts(4, "100mbit") as hosts: subprocess.Popen(hosts.command(0, ["hostname"]))`.

    Rate UNSHAPED leaves the links as fast as the kernel makes them. With a delay every packet arrives `delay_ms` later,
    and one packet of `lost_of` never, where `lost_of` is not 0; `delay_switch` is the program of delay_switch.cc, which
    says why the kernel does not do it.
    """

    DEVICE = "eth0"
    RENDEZVOUS_PORT = 29511

    def __init__(self, count, rate, delay_ms=0, delay_switch=None, lost_of=0):
        self.count = count
        self.rate = rate
        self.delay_ms = delay_ms
        self.delay_switch = delay_switch
        self.lost_of = lost_of
        self.delaying = None  # the process
        self.prefix = f"tutti{os.getpid()}"
        self.switch = f"{self.prefix}sw"

    def name(self, host):
        return f"{self.prefix}h{host}"

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def device(self, host):
        """The name of the host's interface."""
        return self.DEVICE

    def command(self, host, command):
        return ["ip", "netns", "exec", self.name(host)] + list(command)

    def environment(self, rank, secret):
        """The variables of a rank of Tutti, one on each host; `secret` is a file with the job's secret."""
        return {**os.environ, "TUTTI_RANK": str(rank), "TUTTI_SIZE": str(self.count), "TUTTI_LOCAL_RANK": "0",
                "TUTTI_LOCAL_SIZE": "1", "TUTTI_NODE": self.name(rank), "TUTTI_INTERFACE": self.DEVICE,
                "TUTTI_RENDEZVOUS": f"{self.address(0)}:{self.RENDEZVOUS_PORT}", "TUTTI_JOB_SECRET_FILE": str(secret)}

    def __enter__(self):
        end_orderly()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_):
        self._remove()

    def _make(self):
        ip("netns", "add", self.switch)
        ports = [f"port{host}" for host in range(self.count)]
        for host, port in enumerate(ports):
            name, device = self.name(host), self.device(host)
            ip("netns", "add", name)
            ip("link", "add", device, "netns", name, "type", "veth", "peer", "name", port, "netns", self.switch)
            ip("address", "add", f"{self.address(host)}/24", "dev", device, netns=name)
            ip("link", "set", "lo", "up", netns=name)
            ip("link", "set", device, "up", netns=name)
            ip("link", "set", port, "up", netns=self.switch)
            if self.lost_of:  # a frame is one packet, and not what the kernel joins
                ip("link", "set", device, "gso_max_segs", "1", netns=name)
            self._shape(name, device)  # what the host sends
            self._shape(self.switch, port)  # what the host receives
        if self.delay_ms:
            self._start_delay_switch(ports)
        else:
            self._bridge(ports)
        self._wait_for_links()

    def _wait_for_links(self):
        """Waits until the kernel says that the links run, up to a second later; UCX takes no link before."""
        end = time.monotonic() + LINK_LIMIT_S
        for host in range(self.count):
            while "state UP" not in ip("link", "show", self.device(host), netns=self.name(host)):
                if time.monotonic() > end:
                    raise RuntimeError(f"the link of host {host} does not run within {LINK_LIMIT_S} s")
                time.sleep(0.01)

    def _bridge(self, ports):
        ip("link", "add", "switch", "type", "bridge", netns=self.switch)
        ip("link", "set", "switch", "up", netns=self.switch)
        for port in ports:
            ip("link", "set", port, "master", "switch", netns=self.switch)

    def _start_delay_switch(self, ports):
        command = [self.delay_switch, str(round(1000 * self.delay_ms)), str(self.lost_of), *ports]
        self.delaying = subprocess.Popen(["ip", "netns", "exec", self.switch, *command], stdout=subprocess.PIPE, text=True)
        if self.delaying.stdout.readline() != "ready\n":
            raise RuntimeError(f"the program that delays packets ended: {' '.join(command)}")

    def _shape(self, netns, device):
        if self.rate == UNSHAPED:
            return
        subprocess.run(["tc", "-n", netns, "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate, "burst",
                        str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"], check=True, capture_output=True, text=True)

    def _remove(self):
        for name in [self.name(host) for host in range(self.count)] + [self.switch]:
            # Launchers have daemons, which outlive a launcher that is killed.
            inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for process in map(int, inside):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        if self.delaying:
            self.delaying.communicate()


def reason_for_no_hosts():
    """Why this process cannot make hosts; None: the process can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    try:
        with Hosts(2, "1gbit"):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this system does not let a program make network namespaces: {getattr(error, 'stderr', error)}"
