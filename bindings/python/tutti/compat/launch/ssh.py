"""Runs one command on each of several hosts by ssh, until all have ended or one has failed."""

import contextlib
import errno
import io
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from tutti.compat import VARIABLE

# Variables of the caller that its commands on other hosts get, by the beginnings of their names.
_PASSED = ("BAGUA_", "CUDA_", "GLOO_", "HF_", "HOROVOD_", "LD_LIBRARY_PATH", "LANG", "LC_", "MKL_", "NCCL_", "OMP_",
           "PATH", "PL_", "PYTHON", "TORCH", "TUTTI_", "UCX_", "VIRTUAL_ENV", "WANDB_")
# What says who a process is, or where it is: of this host alone.
_OWN = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_", "HOROVOD_CROSS_", "TORCHELASTIC_", "TUTTI_EPOCH",
        "TUTTI_JOB_SECRET_FD", "TUTTI_LOCAL_", "TUTTI_NODE", "TUTTI_RANK", "TUTTI_SIZE")
_PATIENCE = 60  # seconds that hosts have for ending their ranks
_LINE_END = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")


class HostCommand(NamedTuple):
    """A command for a host; ``port`` None is the port that ssh takes by itself."""

    host: str
    port: int | None
    command: list[str]


def check_meeting_place(hosts: Sequence[str]) -> None:
    """ValueError if the first of ``hosts``, where the ranks meet, has a name that means this machine only."""
    if len(hosts) > 1 and (hosts[0] == "localhost" or hosts[0].startswith("127.")):
        raise ValueError(
            f"the first host is {hosts[0]}, which is another machine on each host: give a name or an address by "
            f"which {hosts[1]} finds it")


def environment_to_pass(more: dict[str, str]) -> dict[str, str]:
    """The variables of this process that matter on other hosts, and ``more``."""
    own = {name: value for name, value in os.environ.items()
           if name.startswith(_PASSED) and not name.startswith(_OWN) and name != VARIABLE}
    return own | more


def run_on_hosts(commands: Sequence[HostCommand], environment: dict[str, str], verbose: bool = False) -> int:
    """Runs all commands at once, each in this process's folder; returns 0, or the exit status of the first that failed.

    What a host prints has the host's name before each line. The first failure ends the others, as do Ctrl-C and the end
    of this process or of who reads its output. After any other error of a write (a full disk) the output is dropped, and
    the status is 1 in place of 0.
    """
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    running: list[_Host] = []
    ended: queue.SimpleQueue[_Host] = queue.SimpleQueue()
    try:
        for command in commands:
            running.append(_Host(command, environment, verbose, ended))
        for _ in commands:
            host = ended.get()
            if host.has_no_reader:
                _say(f"nobody reads what host {host.name} prints; all hosts are ended")
                return 128 + signal.SIGPIPE
            if host.status != 0:
                why = " (ssh itself failed, or the command ended with 255)" if host.status == 255 else ""
                _say(f"host {host.name} ended with exit status {host.status}{why}; all hosts are ended")
                return host.status
        return 1 if any(host.lost_output for host in running) else 0
    except KeyboardInterrupt:
        _say("Ctrl-C: all hosts are ended")
        return 128 + signal.SIGINT
    finally:
        for host in running:
            host.ask_to_end()
        for host in running:
            host.wait_for_end()
        signal.signal(signal.SIGTERM, former)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, or the disk is full
        # In one piece, since lines of hosts may be printed at the same time.
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def _tagged(source: io.BufferedReader, tag: bytes) -> Iterator[bytes]:
    """The lines of ``source``, as they come, with ``tag`` before each; they end with \\n, \\r or \\r\\n.

    A progress bar ends its lines with \\r, and each is handed on at once: whether \\n follows is not waited for.
    """
    begun = bytearray()  # a line without its end
    after_return = False
    while part := source.read1(1 << 16):
        if after_return and part.startswith(b"\n"):
            yield b"\n"
            part = part[1:]
        after_return = part.endswith(b"\r")
        first, *others = _LINE_END.split(part)
        begun += first
        for other in others:
            yield tag + begun
            begun = bytearray(other)
    if begun:
        yield tag + begun + b"\n"


class _Host:
    """A host on which the command runs.

    The host is put into ``ended`` when the command has ended and its lines are printed, and when nobody reads them.
    """

    def __init__(self, command: HostCommand, environment: dict[str, str], verbose: bool,
                 ended: "queue.SimpleQueue[_Host]") -> None:
        self.name = command.host
        self.has_no_reader = False  # of what the host prints
        self.lost_output = False
        self._ended = ended
        port = [] if command.port is None else ["-p", str(command.port)]
        python_path = environment.get("PYTHONPATH")
        found_by = ["env", f"PYTHONPATH={python_path}"] if python_path else []
        remote = shlex.join([*found_by, sys.executable, "-m", "tutti.compat.launch.on_host"])
        words = ["ssh", *port, command.host, f"cd {shlex.quote(os.getcwd())} && exec {remote}"]
        if verbose:
            _say(f"{shlex.join(words)}\n{command.host}: {shlex.join(command.command)}")
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._printers = [threading.Thread(target=self._print_lines, args=pair, daemon=True) for pair in (
            (self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr))]
        for printer in self._printers:
            printer.start()
        # By stdin, since every user of the host can read a command line.
        job = json.dumps({"command": command.command, "environment": environment})
        try:
            self._process.stdin.write(job.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # ssh has failed already; its exit status says more
            pass
        threading.Thread(target=self._tell_when_ended, daemon=True).start()

    @property
    def status(self) -> int:
        """The exit status, as a shell has it, of a host that has ended."""
        status = self._process.returncode
        return status if status >= 0 else 128 - status

    def ask_to_end(self) -> None:
        """Closes the host's stdin, which ends the command there."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def wait_for_end(self) -> None:
        """Waits until the host has ended; says so if the host does not."""
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _say(f"host {self.name} did not end its ranks within {_PATIENCE} s; look for processes there")
        for printer in self._printers:
            printer.join(_PATIENCE)

    def _tell_when_ended(self) -> None:
        self._process.wait()
        for printer in self._printers:
            printer.join(_PATIENCE)
        self._ended.put(self)

    def _print_lines(self, source: io.BufferedReader, target: TextIO) -> None:
        try:
            for line in _tagged(source, f"{self.name}: ".encode()):
                os.write(target.fileno(), line)  # in one piece
        except OSError as error:
            self._lose_output(error)
            while source.read1(1 << 16):  # ssh could not end before what the host prints is read
                pass

    def _lose_output(self, error: OSError) -> None:
        self.lost_output = True
        if error.errno == errno.EPIPE:
            self.has_no_reader = True
            self._ended.put(self)
        else:
            _say(f"cannot print what host {self.name} prints: {error.strerror}; it is lost")
