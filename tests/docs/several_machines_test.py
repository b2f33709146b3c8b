"""The recipes of docs/several_machines.md, run as they stand there, on machines that are network namespaces.

    several_machines_test.py FOLDER PYTHON [TEST…]     (FOLDER: where tutti is; PYTHON: one that has torch)

Skipped (exit code 77) where the system does not let a test make network namespaces.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

from machines import Machines, reason_for_no_hosts
from slurm_cluster import missing_programs, slurm_on

SKIPPED = 77
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/several_machines.md").read_text(encoding="utf-8")
BIN = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON = pathlib.Path(sys.argv.pop(1))
RECIPES = {match[1]: match[2] for match in re.finditer(r"<!-- recipe: (\w+) -->\n```\w+\n(.*?)^```$", PAGE, re.S | re.M)}
SECRET = "TUTTI_JOB_SECRET_FILE=~/.tutti_job_secret"


def scripts(recipe):
    """{machine: script} of a recipe, whose lines `# on node1`, `# on both` say where the lines below them run."""
    lines = {name: [] for name in Machines.NAMES}
    where = ()
    for line in RECIPES[recipe].splitlines():
        if mark := re.fullmatch(r"# on (\w+)", line):
            where = Machines.NAMES if mark[1] == "both" else (mark[1],)
        else:
            for name in where:
                lines[name].append(line)
    return {name: "\n".join(of) for name, of in lines.items() if of}

# Both machines have one name, which each looks up as its own.
ONE_NAME = """
printf '127.0.0.1 localhost\\n127.0.1.1 box\\n10.77.0.1 node1\\n10.77.0.2 node2\\n' > own
mount --bind own /etc/hosts
hostname box
"""
# Packets leave the machine only for these ports. The system's range is that of this machine, a network namespace.
FIREWALL = """
echo 29700 29799 > /proc/sys/net/ipv4/ip_local_port_range
ip rule add priority 10 ipproto tcp dport 29400 lookup main
ip rule add priority 11 ipproto tcp dport 29700-29799 lookup main
ip rule add priority 12 ipproto tcp blackhole
"""


class Page(unittest.TestCase):
    def test_no_secret_is_on_a_command_line(self):
        self.assertNotRegex(PAGE, r"\$\((openssl|cat)")


class OnMachines(unittest.TestCase):
    """A test with two machines of its own, where the secret has been made."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machines = self.enterContext(Machines(folder.name, [BIN, PYTHON.parent]))
        self.check(scripts("secret"))

    def enterContext(self, context):  # unittest has this method from Python 3.11 on
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def need_torch(self):
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest(f"{PYTHON} has no torch")

    def need_another_user(self):
        if subprocess.run([*AS_NOBODY.split(), BIN / "tutti", "--version"], capture_output=True).returncode != 0:
            self.skipTest("this user cannot run tutti as another one")

    def check(self, by_machine, ranks=None, **more):
        """Runs the scripts, which end well, and whose table is of `ranks` ranks; returns what node1 has printed."""
        ended = self.machines.run(by_machine, **more)
        self.assertEqual([status for status, *_ in ended.values()], [0] * len(ended), ended)
        if ranks:
            tables = "".join(output for _, output, _ in ended.values())
            self.assertRegex(tables, rf"\b{ranks} ranks\b", ended)
        return ended["node1"][1]


class Recipes(OnMachines):
    def need(self, name, program):
        if not self.machines.call(name, program):
            self.skipTest(f"{program} is not installed")

    def test_secret(self):
        secrets = [(self.machines.folder / "home" / name / ".tutti_job_secret") for name in Machines.NAMES]
        self.assertEqual(secrets[0].read_text(), secrets[1].read_text())
        self.assertEqual([secret.stat().st_mode & 0o777 for secret in secrets], [0o600] * 2)

    def test_by_hand(self):
        self.check(scripts("by_hand"), 2)

    def test_launch_hosts(self):
        printed = self.check(scripts("launch_hosts"))
        commands = re.findall(r"^# (\w+): ranks? .*\n(.*)$", printed, re.M)
        self.check(dict(commands), 3)

    def test_torchrun(self):
        self.need_torch()
        self.check(scripts("torchrun"), 4)

    def test_torchrun_static(self):
        self.need_torch()
        self.check(scripts("torchrun_static"), 4)
        self.check({name: f"{ONE_NAME}\n{script}" for name, script in scripts("torchrun_static").items()}, 4)

    def test_open_mpi(self):
        self.need("mpirun", "mpirun.openmpi")
        self.check(scripts("open_mpi"), 4)

    def test_mpich(self):
        self.need("mpirun", "mpirun.mpich")
        self.check(scripts("mpich"), 4)

    def test_slurm(self):
        if missing := missing_programs():
            self.skipTest(f"{missing} are not installed: run .ci/install matrix")
        self.check(scripts("slurm"), 4, **self.enterContext(slurm_on(self.machines)))

    def test_kubernetes(self):
        """The variables of an operator, and the command of the page's container."""
        words = re.search(r"command: \[(.*)\]", RECIPES["kubernetes"])[1].replace(",", "")
        self.assertIn("name: TUTTI_JOB_SECRET\n", RECIPES["kubernetes"])
        by_machine = {name: f"export TUTTI_JOB_SECRET=$(cat ~/.tutti_job_secret)\nRANK={rank} {words}"
                      for rank, name in enumerate(Machines.NAMES)}
        self.check(by_machine, 2, WORLD_SIZE="2", MASTER_ADDR="node1", MASTER_PORT="23456")

    def test_two_pods_on_each_machine(self):
        by_machine = {name: f"export {SECRET}\nRANK={rank} tutti bench all_reduce -e 4 & "
                            f"RANK={rank + 2} tutti bench all_reduce -e 4 && wait $!"
                      for rank, name in enumerate(Machines.NAMES)}
        self.check(by_machine, 4, WORLD_SIZE="4", MASTER_ADDR="node1", MASTER_PORT="23456")

    def test_a_master_that_calls_itself_localhost(self):
        by_machine = {name: f"export {SECRET}\nRANK={rank} MASTER_ADDR={master} tutti bench all_reduce -e 4"
                      for rank, (name, master) in enumerate(zip(Machines.NAMES, ["localhost", "node1"]))}
        self.check(by_machine, 2, WORLD_SIZE="2", MASTER_PORT="23456", TUTTI_RENDEZVOUS="node1:23457")

    def test_containers_that_have_one_network(self):
        """Ranks with process numbers, System V memory and a /dev/shm of their own."""
        inside = ("unshare --ipc --pid --fork --mount-proc sh -c 'mount -t tmpfs none /dev/shm; exec \"$@\"' sh "
                  "tutti bench all_reduce -b 64K -e 64K")
        for flag in "", "--messages":
            script = f"export {SECRET}\nTUTTI_RANK=0 {inside} {flag} & TUTTI_RANK=1 {inside} {flag} && wait $!"
            self.check({"node1": script}, 2, **ONE_MACHINE)

    def test_containers_that_send_over_tcp(self):
        """Containers of one network send over TCP, unless they have /dev/shm, System V memory and process numbers in common."""
        connections = {}
        for own in "", "--ipc", "--pid --fork --mount-proc":  # --mount-proc: /proc shows the process numbers
            inside = f"unshare --mount {own} tutti bench all_reduce --messages -b 64K -e 64K"
            ranks = f"(TUTTI_RANK=0 {inside} & TUTTI_RANK=1 {inside} && wait $!; echo $? > ended) &"
            look = "until [ -s ended ]; do ss -Htn state established not sport = :29400 and not dport = :29400; done > seen"
            self.check({"node1": f"export {SECRET}\n{ranks}\n{look}\nread status < ended; rm ended; exit $status"}, 2,
                       **ONE_MACHINE)
            connections[own] = (self.machines.folder / "home/node1/seen").read_text() != ""
        self.assertEqual(list(connections.values()), [False, True, True], connections)

    def test_users_of_one_machine(self):
        """Ranks of two users have node names of their own, and send over TCP."""
        self.need_another_user()
        self.check({"node1": as_two_users("export TUTTI_NODE=other")}, 2, **ONE_MACHINE)

    def test_a_store_in_a_folder(self):
        """No host serves a store that is a folder, so that none says which interface leads to the other machines."""
        self.check(by_hand(STORE_IN_A_FOLDER, STORE_IN_A_FOLDER), 2, **PLACE | {"TUTTI_INTERFACE": "10.77.0.0/24"})

    def test_ports(self):
        """A firewall lets through what the page's table of ports names, and nothing else."""
        measure = "(tutti bench all_reduce -e 1M; echo $? > ended) & until [ -s ended ]; do ss -Hltn; done > listening"
        variables = {"TUTTI_SIZE": "2", "TUTTI_RENDEZVOUS": "node1:29400"}
        self.check({name: f"{FIREWALL}\nexport {SECRET} TUTTI_RANK={rank}\n{measure}\nexit $(cat ended)"
                    for rank, name in enumerate(Machines.NAMES)}, 2, **variables)
        for name in Machines.NAMES:
            listening = (self.machines.folder / "home" / name / "listening").read_text()
            # Ranks listen for milliseconds, while they connect: `ss` may miss it.
            self.assertLessEqual(set(re.findall(r" ([^ ]*):(?:29400|297\d\d) ", listening)),
                                 {self.machines.address(Machines.NAMES.index(name))})

    def test_subnet(self):
        self.check(scripts("subnet"), 2)

    def test_an_interface_beside_the_one_where_rank_0_is_met(self):
        """Rank 0 is met at the address that TUTTI_RENDEZVOUS means, whichever TUTTI_INTERFACE names."""
        second = {name: f"ip address add 10.78.0.{i + 1}/24 dev {self.machines.device(i)}; "
                        f"ip address add fd00::{i + 1}/64 nodad dev {self.machines.device(i)}"
                  for i, name in enumerate(Machines.NAMES)}
        self.check(second)
        self.check(by_hand(), 2, **PLACE | {"TUTTI_TIMEOUT": "20", "TUTTI_INTERFACE": "10.78.0.0/24"})
        own_device = [f"export TUTTI_INTERFACE={self.machines.device(i)}" for i in range(2)]
        self.check(by_hand(*own_device), 2, **PLACE | {"TUTTI_TIMEOUT": "20", "TUTTI_RENDEZVOUS": "[fd00::1]:29400"})

    def test_a_link_that_is_ready_later(self):
        """A second goes by until the kernel says of an interface that it runs, and lets packets through."""
        first, second = by_hand(before2=f"{NOT_READY}; (sleep 1; {READY}) &").values()
        self.check({"node1": first, "node2": second}, 2, **PLACE | {"TUTTI_TIMEOUT": "60"})

    def test_ranks_on_one_machine_need_no_link(self):
        """TUTTI_INTERFACE may name an interface that does not run, which only ranks of other nodes would need.

        A rank that has waited for its interface says so.
        """
        for before in NOT_READY, "ip link set ens5 down":
            script = f"{before}\ntutti bench all_reduce --ranks 2 -b 4 -e 4"
            status, output, errors = self.machines.run({"node2": script}, TUTTI_INTERFACE="10.77.0.2")["node2"]
            self.assertEqual(status, 0, errors)
            self.assertRegex(output, r"\b2 ranks\b")
            self.assertNotIn("interface ens5", errors)

    def test_a_link_that_is_never_ready(self):
        """A rank says why after a while, and goes on: the kernel lets packets through."""
        first, second = by_hand(before2=NOT_READY).values()
        began = time.monotonic()
        ended = self.machines.run({"node1": first, "node2": second}, **PLACE | {"TUTTI_TIMEOUT": "120"})
        self.assertLess(time.monotonic() - began, 50)  # a rank may wait 10 s, and not half of its time
        self.assertRegex(ended["node2"][2], r"tutti: rank 1: interface ens5 is up, but does not run: .*; ip link show ens5 "
                                            r"tells more, and TUTTI_INTERFACE")
        self.assertEqual([ended[node][0] for node in sorted(ended)], [0, 0], ended)

def by_hand(before1="", before2="", rank1=1):
    """The scripts of a rank on each machine, and what each machine does before."""
    measure = "tutti bench all_reduce -e 4"
    return {"node1": f"{before1}\nTUTTI_RANK=0 {measure}", "node2": f"{before2}\nTUTTI_RANK={rank1} {measure}"}


ONE_MACHINE = {"TUTTI_SIZE": "2", "TUTTI_RENDEZVOUS": "node1:29400"}
PLACE = {"TUTTI_SIZE": "2", "TUTTI_RENDEZVOUS": "node1:29400", "TUTTI_JOB_SECRET_FILE": ".tutti_job_secret",
         "TUTTI_TIMEOUT": "2"}


def without(name, **more):
    return {variable: value for variable, value in PLACE.items() if variable != name} | more


def as_two_users(before):
    """The script of two ranks of one machine, of which rank 1 runs as another user, and does `before` first."""
    measure = "tutti bench all_reduce -e 4"
    return (f"export TUTTI_JOB_SECRET=$(cat ~/.tutti_job_secret)\nTUTTI_RANK=0 {measure} & rank0=$!\n{before}\n"
            f"TUTTI_RANK=1 {AS_NOBODY} $(command -v tutti) {measure.removeprefix('tutti ')} || failed=$?\n"
            "wait $rank0; exit ${failed:-0}")


# Mistakes of the page's table, and the scripts and variables that make them.
MPIRUN = {"RANK": "0", "WORLD_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
TAKE_THE_PORT = """
python3 -c 'import socket, time; s = socket.create_server(("10.77.0.1", 29400)); print(flush=True); time.sleep(9)' > taken &
until [ -s taken ]; do :; done
"""
# What comes for another port is lost without an answer. The rules come before those of the table `local`, which takes
# all packets in.
LOSES_ALL_BUT_THE_MEETING = """
ip rule add priority 10 ipproto tcp dport 29400 lookup local
ip rule add priority 11 ipproto tcp sport 29400 lookup local
ip rule add priority 12 iif "$(ls /sys/class/net | grep -v lo)" ipproto tcp blackhole
ip rule add priority 13 lookup local
ip rule del priority 0
"""
# The kernel lets packets through, and says that the interface does not run.
NOT_READY = "ip link set ens5 down; ip link set ens5 mode dormant; ip link set ens5 up"
READY = "ip link set ens5 mode default state up"
AS_NOBODY = "setpriv --reuid 65534 --clear-groups"
# The home directories of both machines are in one folder.
STORE_IN_A_FOLDER = "mkdir -pm 700 ../store; export TUTTI_STORE=file://$(cd ../store; pwd)"
MISTAKES = {
    "no secret": (by_hand(), without("TUTTI_JOB_SECRET_FILE")),
    "another secret on one machine": (by_hand(before2="printf %064d 1 > .tutti_job_secret"), PLACE),
    "a secret that others can read": (by_hand(before1="chmod 644 .tutti_job_secret"), PLACE),
    "nothing says where rank 0 is, and a launcher says that there are several nodes":
        (by_hand(), without("TUTTI_RENDEZVOUS", TUTTI_LOCAL_RANK="0", TUTTI_LOCAL_SIZE="1")),
    "nothing says where rank 0 is, by hand": (by_hand(), without("TUTTI_RENDEZVOUS")),
    "`TUTTI_RENDEZVOUS` is misspelt": (by_hand(), without("TUTTI_RENDEZVOUS", TUTTI_RENDEZVOUZ="node1:29400")),
    "the name of rank 0's machine means nothing here": (by_hand(), PLACE | {"TUTTI_RENDEZVOUS": "node9:29400"}),
    "the name of rank 0's machine means 127.0.1.1 on this machine, as Debian's /etc/hosts has it":
        (by_hand(before1="echo 127.0.1.1 node1 > own; mount --bind own /etc/hosts"), PLACE),
    "rank 0 is started on another machine than `TUTTI_RENDEZVOUS` names": (by_hand(rank1=0), PLACE),
    "the port is taken": (by_hand(before1=TAKE_THE_PORT), PLACE),
    "a machine is not started, or does not get through to rank 0": (by_hand(before2="exit 0"), PLACE),
    "a firewall drops all packets": (by_hand(before1="ip route add blackhole 10.77.0.2"), PLACE),
    "a firewall lets ranks through to rank 0's port alone":
        (by_hand(before2=LOSES_ALL_BUT_THE_MEETING), PLACE),
    "the number of ranks differs": (by_hand(before2="export TUTTI_SIZE=3"), PLACE),
    "an interface that one machine does not have": (by_hand(), PLACE | {"TUTTI_INTERFACE": "eth0"}),
    "an interface whose link is not ready, as in the first second after it was brought up, and then still not within "
    "10 s, or half of `TUTTI_TIMEOUT` where that is shorter": (by_hand(before2=NOT_READY), PLACE),
    "`TUTTI_INTERFACE` names loopback": (by_hand(), PLACE | {"TUTTI_INTERFACE": "lo"}),
    "ranks of several users on one machine": ({"node1": as_two_users("")}, ONE_MACHINE),
    "`TUTTI_STORE` names a folder, and ranks are on several machines": (by_hand(STORE_IN_A_FOLDER, STORE_IN_A_FOLDER), PLACE),
    "one `TUTTI_NODE` for several machines": (by_hand(), PLACE | {"TUTTI_NODE": "same"}),
    "torchrun's c10d on machines whose own names do not lead to them, or that share one name":
        ({name: f"{ONE_NAME}\ntorchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint node1:29400 "
                "--rdzv-conf read_timeout=2,timeout=3 --no-python tutti info" for name in Machines.NAMES}, {}),
    "`RANK` and `WORLD_SIZE` from yesterday, under mpirun":
        ({name: f"OMPI_COMM_WORLD_RANK={rank} tutti info" for rank, name in enumerate(Machines.NAMES)}, MPIRUN),
    "`MASTER_PORT` is no number": ({"node1": "tutti info"}, {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "abc"}),
    "`TUTTI_STORE` names a folder that does not exist": (by_hand(), PLACE | {"TUTTI_STORE": "file:///nowhere"}),
}


class Mistakes(OnMachines):
    def make(self, mistake, beginning):
        by_machine, variables = MISTAKES[mistake]
        if "torchrun" in mistake:
            self.need_torch()
        if "users" in mistake:
            self.need_another_user()
        ended = self.machines.run(by_machine, **variables)
        pattern = ".*".join(map(re.escape, beginning.split("…")))
        self.assertRegex("".join(errors for *_, errors in ended.values()), pattern)


def add_tests_of_mistakes():
    """A test for each row of the page's table."""
    rows = re.findall(r"^\| (.+?) \| `(.+?)` \|", PAGE.partition("| mistake |")[2], re.M)
    for mistake, beginning in rows:
        def test(self, mistake=mistake, beginning=beginning):
            self.make(mistake, beginning)
        setattr(Mistakes, "test_" + re.sub(r"\W+", "_", mistake), test)
    assert {mistake for mistake, _ in rows} == set(MISTAKES), "the table has other mistakes than this test"


if __name__ == "__main__":
    if reason := reason_for_no_hosts():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    add_tests_of_mistakes()
    unittest.main(verbosity=2)
