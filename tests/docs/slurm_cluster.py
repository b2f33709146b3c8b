"""Slurm's own daemons on the machines of machines.py, as a cluster of two nodes."""

import contextlib
import pathlib
import shutil
import subprocess
import time

from machines import LIMIT_S

PROGRAMS = ("srun", "sinfo", "slurmctld", "slurmd", "munged", "mungekey")
COMMON = pathlib.Path(__file__).resolve().parents[1] / "harness/slurm.conf"
CONFIGURATION = f"""
Include {COMMON}
ClusterName=tutti
SlurmctldHost=node1
AuthInfo=socket={{folder}}/munge.socket
StateSaveLocation={{folder}}/state
SlurmdSpoolDir={{folder}}/spool-%n
SlurmctldPidFile={{folder}}/slurmctld.pid
SlurmdPidFile={{folder}}/slurmd-%n.pid
NodeName=node[1-2] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing_programs():
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextlib.contextmanager
def slurm_on(machines):
    """Runs the daemons; yields the variables that commands of Slurm need."""
    folder = machines.folder / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # otherwise slurmd looks for what is not mounted here
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run(["mungekey", "--create", f"--keyfile={folder}/munge.key"], check=True)
    files = [f"--{name}={folder}/munge.{end}" for name, end in (
        ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
    daemons = []

    def start(name, *command):
        with open(folder / f"{command[0]}-{name}.out", "w") as log:
            daemons.append(subprocess.Popen(machines.enter(name, command), env=machines.variables(name) | variables,
                                            stdout=log, stderr=log))

    def wait_until(what, condition):
        end = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
                logs = "\n".join(file.read_text() for file in folder.glob("*.out"))
                raise RuntimeError(f"Slurm: {what} is not ready\n{logs}")
            time.sleep(0.05)

    def all_are_idle():
        answer = machines.run({"node1": "sinfo -h -o '%T %D'"}, **variables)
        return answer["node1"][1] == "idle 2\n"

    try:
        start("node1", "munged", "--foreground", "--force", *files)
        wait_until("munged", (folder / "munge.socket").exists)
        start("node1", "slurmctld", "-D")
        for name in machines.NAMES:
            start(name, "slurmd", "-D", "-N", name)
        wait_until("a node", all_are_idle)
        yield variables
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
            daemon.wait()
