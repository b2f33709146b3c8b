"""A script under srun, with Slurm's own daemons as a cluster of one node, which root starts in a folder of the test."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from launchers import LIMIT, PYTHON, SUM, check_sums, environment, write
from lightning_launch_test import SCRIPT, check

PROGRAMS = ["srun", "sinfo", "slurmctld", "slurmd", "munged", "mungekey"]


def free_ports(count):
    """Ports that nobody uses at the moment; the daemons cannot choose theirs."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


COMMON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../harness/slurm.conf")
CONFIGURATION = f"""
Include {COMMON}
ClusterName=tutti
SlurmctldHost={{host}}(127.0.0.1)
SlurmctldPort={{ports[0]}}
SlurmdPort={{ports[1]}}
AuthInfo=socket={{folder}}/munge.socket
StateSaveLocation={{folder}}/state
SlurmdSpoolDir={{folder}}/spool
SlurmctldPidFile={{folder}}/slurmctld.pid
SlurmdPidFile={{folder}}/slurmd.pid
NodeName={{host}} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={{host}} Default=YES State=UP
"""


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.daemons = []
        self.environment = environment(SLURM_CONF=str(folder / "slurm.conf"))

    def start(self, *command):
        log = open(self.folder / f"{command[0]}.out", "w")
        self.daemons.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                             env=self.environment))

    def logs(self):
        return "\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in sorted(self.folder.glob("*.out")))

    def wait_for(self, what, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            assert not ended and time.monotonic() < end, f"{what}; ended: {ended}\n{self.logs()}"
            time.sleep(0.05)

    def idle(self):
        ended = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, timeout=LIMIT,
                               env=self.environment)
        return ended.stdout.strip() == "idle"

    def __enter__(self):
        folder = self.folder
        for name in ("state", "spool"):
            (folder / name).mkdir()
        configuration = CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=folder, ports=free_ports(2))
        (folder / "slurm.conf").write_text(configuration)
        subprocess.run(["mungekey", "--create", f"--keyfile={folder}/munge.key"], check=True, timeout=LIMIT)
        try:
            self.start("munged", "--foreground", "--force", f"--key-file={folder}/munge.key",
                       f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid",
                       f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed")
            self.wait_for("munged", (folder / "munge.socket").exists)
            self.start("slurmctld", "-D")
            self.start("slurmd", "-D")
            self.wait_for("the node is not idle", self.idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def srun(self, *arguments):
        return subprocess.run(["srun", *[str(word) for word in arguments]], capture_output=True, text=True,
                              timeout=LIMIT, env=self.environment, cwd=self.folder)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{missing} are not installed: run .ci/install matrix")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    with Slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


def test_srun(slurm, tmp_path):
    ended = slurm.srun("-n", 3, PYTHON, write(tmp_path, SUM))
    assert ended.returncode == 0, ended.stderr + slurm.logs()
    check_sums(ended.stdout, 3)


def test_ranks_that_contradict_srun(slurm, tmp_path):
    """RANK and WORLD_SIZE that are the same in every task, as srun hands them on from a shell."""
    script = SUM.replace(', init_method="tutti://"', "")
    left = "env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=0".split()
    ended = slurm.srun("-n", 2, *left, PYTHON, write(tmp_path, script))
    assert ended.returncode != 0 and "WORLD_SIZE=1 and SLURM_STEP_NUM_TASKS=2 disagree" in ended.stderr, ended.stderr


def test_torchrun_inside_srun(slurm, tmp_path):
    """torchrun in each task of a step, which Slurm's manuals advise: torchrun's ranks count, not Slurm's."""
    command = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, write(tmp_path, SUM)]
    ended = slurm.srun("-n", 2, *command)
    assert ended.returncode == 0, ended.stderr
    assert [ended.stdout.count(f"<rank {rank} of 2 sum 3>") for rank in range(2)] == [2, 2], ended.stdout


@pytest.mark.parametrize("strategy, devices, lr", [("bagua", 2, 0.1), ("tutti:decentralized", 2, 0.1), ("horovod", 1, 0.2)])
def test_lightning(slurm, tmp_path, strategy, devices, lr):
    ended = slurm.srun("-n", 2, "--ntasks-per-node", 2, PYTHON, write(tmp_path, SCRIPT), strategy, devices)
    assert ended.returncode == 0, ended.stderr + slurm.logs()
    check(ended.stdout, strategy, 2, 8, lr)
