"""Ranks on several hosts, which are network namespaces: each has a stack, interfaces and routes of its own.

TUTTI_NODE lets the namespaces, which share a kernel, count as nodes of their own; no other variable of Tutti is set.
"""

import os
import shutil
import subprocess
import time

import pytest

from launchers import LIMIT, PYTHON, SUM, check_sums, environment, write

# What gloo's users write: torch's own variables.
ENV = SUM.replace(', init_method="tutti://"', "").replace("import tutti.torch", "import tutti.torch, sys")
TCP = ENV.replace('group("tutti"', 'group("tutti", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2')


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


@pytest.fixture(scope="module")
def hosts():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("making network namespaces needs root and iproute2")
    try:
        with Hosts() as hosts:
            yield hosts
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this system does not let a test make network namespaces: {error.stderr}")


TORCHS_OWN = {"RANK": str, "WORLD_SIZE": "2", "MASTER_PORT": "29533"}  # a port of the namespaces, not of this machine
LARGE = "\ndist.all_reduce(torch.ones(1 << 20))\ndist.destroy_process_group()"


def check(ended):
    assert [status for _, status in ended] == [0, 0], ended
    check_sums("".join(out for (out, _), _ in ended), 2)


@pytest.mark.parametrize("network", [0, 1])
def test_the_route_to_the_master_is_the_way(hosts, network, tmp_path):
    script = write(tmp_path, ENV.replace("\ndist.destroy_process_group()", LARGE))
    before = [hosts.received(host, network) for host in range(2)]
    check(hosts.run(script, MASTER_ADDR=f"10.{78 + network}.0.1", **TORCHS_OWN))
    for host in range(2):
        assert hosts.received(host, network) - before[host] > 4 << 19  # half of the sum's bytes, at least


def test_the_interface_that_is_named_for_gloo_is_the_way(hosts, tmp_path):
    script = write(tmp_path, ENV.replace("\ndist.destroy_process_group()", LARGE))
    before = [hosts.received(host, 1) for host in range(2)]
    check(hosts.run(script, MASTER_ADDR="10.78.0.1", GLOO_SOCKET_IFNAME="net1", **TORCHS_OWN))
    for host in range(2):
        assert hosts.received(host, 1) - before[host] > 4 << 19


def test_a_master_that_knows_itself_by_loopback_alone(hosts, tmp_path):
    """As on Debian, whose /etc/hosts gives a machine's own name the address 127.0.1.1."""
    check(hosts.run(write(tmp_path, ENV), MASTER_ADDR=lambda host: ["127.0.1.1", "10.78.0.1"][host], **TORCHS_OWN))


def test_an_address_in_init_method(hosts, tmp_path):
    check(hosts.run(write(tmp_path, TCP), lambda host: ["tcp://10.79.0.1:29534", str(host)]))


def test_a_launcher_and_torchs_address(hosts, tmp_path):
    launcher = {"TUTTI_RANK": str, "TUTTI_SIZE": "2", "TUTTI_LOCAL_RANK": "0", "TUTTI_LOCAL_SIZE": "1"}
    check(hosts.run(write(tmp_path, SUM), MASTER_ADDR="10.78.0.1", **launcher))


def test_an_interface_that_does_not_exist(hosts, tmp_path):
    ended = hosts.run(write(tmp_path, ENV), MASTER_ADDR="10.78.0.1",
                      GLOO_SOCKET_IFNAME=lambda host: ["net0", "nosuch0"][host], **TORCHS_OWN)
    for (_, error), status in ended:
        assert status != 0 and "rank 1: GLOO_SOCKET_IFNAME=nosuch0 is no network interface" in error, error


def test_a_file_tells_no_way(hosts, tmp_path):
    ended = hosts.run(write(tmp_path, TCP), lambda host: [f"file://{tmp_path}/store", str(host)])
    for (_, error), status in ended:
        assert status != 0, error
        assert "ranks 0 and 1 are on different nodes, and nothing says which network interface joins them" in error, error
        assert "set TUTTI_INTERFACE or GLOO_SOCKET_IFNAME" in error, error
