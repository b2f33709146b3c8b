"""Two hosts for tests, which are network namespaces: each has a stack, interfaces and routes of its own.

TUTTI_NODE lets the namespaces, which share a kernel, count as nodes of their own.
"""

import os
import shutil
import subprocess
import time

import pytest

from launchers import LIMIT, PYTHON, environment


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Hosts:
    """Two hosts that are joined by two networks, 10.78.0.0/24 on net0 and 10.79.0.0/24 on net1."""

    def __init__(self):
        self.names = [f"tuttinet{os.getpid()}h{host}" for host in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for network in range(2):
                a, b = self.names
                ip("link", "add", f"net{network}", "netns", a, "type", "veth", "peer", "name", f"net{network}", "netns", b)
                for host, name in enumerate(self.names):
                    ip("-n", name, "address", "add", f"10.{78 + network}.0.{host + 1}/24", "dev", f"net{network}")
                    ip("-n", name, "link", "set", f"net{network}", "up")
            # The kernel tells up to a second later that a link runs; UCX takes no device that does not run.
            end = time.monotonic() + LIMIT
            while not all(self.read(host, network, "operstate") == "up" for host in range(2) for network in range(2)):
                assert time.monotonic() < end, f"the links are not up within {LIMIT} s"
                time.sleep(0.01)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def read(self, host, network, file):
        """What the kernel says of the host's link to the network."""
        command = ["ip", "netns", "exec", self.names[host], "cat", f"/sys/class/net/net{network}/{file}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def received(self, host, network):
        """How many bytes the host has received from the network."""
        return int(self.read(host, network, "statistics/rx_bytes"))

    def run(self, script, arguments=lambda host: [], size=2, **variables):
        """Runs one rank on each host; returns what each wrote."""
        ranks = []
        for host, name in enumerate(self.names):
            of_host = {key: value(host) if callable(value) else value for key, value in variables.items()}
            ranks.append(subprocess.Popen(
                ["ip", "netns", "exec", name, PYTHON, script, *arguments(host)], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, env=environment(TUTTI_NODE=name, **of_host)))
        try:
            return [(rank.communicate(timeout=LIMIT), rank.returncode) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()


def make_hosts():
    """Yields the two hosts, or skips the test where the system does not let a test make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("making network namespaces needs root and iproute2")
    try:
        with Hosts() as hosts:
            yield hosts
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this system does not let a test make network namespaces: {error.stderr}")
