"""Ranks on several hosts; no variable of Tutti but TUTTI_NODE is set."""

import pytest

from hosts import make_hosts
from launchers import SUM, check_sums, write

# What gloo's users write: torch's own variables.
ENV = SUM.replace(', init_method="tutti://"', "").replace("import tutti.torch", "import tutti.torch, sys")
TCP = ENV.replace('group("tutti"', 'group("tutti", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2')


@pytest.fixture(scope="module")
def hosts():
    yield from make_hosts()


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
