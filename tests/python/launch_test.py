"""Scripts under the launchers that people have, the launchers themselves being the real ones."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

import forked_python
from launchers import LIMIT, PYTHON, SUM, TORCHRUN, check_sums, environment, run, write

forked_python.import_once("tutti.torch")
MPIRUNS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
}


@pytest.fixture(params=MPIRUNS)
def mpirun(request):
    command = MPIRUNS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed: run .ci/install core")
    return command


def test_torchrun(tmp_path):
    check_sums(run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, write(tmp_path, SUM)]).stdout, 2)


def test_mpirun(mpirun, tmp_path):
    check_sums(run([*mpirun, "-n", 3, PYTHON, write(tmp_path, SUM)]).stdout, 3)


# What the ranks listen on, as the kernel tells; mpirun leaves a listening socket of its own in every rank.
LISTENS = SUM.replace("torch.set_num_threads(1)", """
def listening():
    mine, found = set(), {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # the one by which the folder is read
            pass
    for table in "tcp", "tcp6":
        for line in open(f"/proc/self/net/{table}").readlines()[1:]:
            word = line.split()
            if word[3] == "0A" and f"socket:[{word[9]}]" in mine:
                found[word[9]] = word[1].split(":")[0]
    return found

before = listening()
""").replace("dist.destroy_process_group()", """
dist.barrier()
after = {address for inode, address in listening().items() if inode not in before}
os.write(1, f"<rank {dist.get_rank()} listens at {' '.join(sorted(after))}>\\n".encode())
dist.destroy_process_group()
""")


def test_ranks_of_one_node_listen_on_loopback_alone(mpirun, tmp_path):
    left = {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}  # by another job
    text = run([*mpirun, "-n", 2, PYTHON, write(tmp_path, LISTENS)], **left).stdout
    lines = sorted(line for line in text.split("\n") if "listens" in line)
    assert lines == ["<rank 0 listens at 0100007F>", "<rank 1 listens at >"], text  # torch's store at 127.0.0.1


def test_no_launcher(tmp_path):
    check_sums(run([PYTHON, write(tmp_path, SUM)]).stdout, 1)


def test_a_group_can_be_made_again(tmp_path):
    script = SUM + SUM.replace("sum", "again")
    text = run([*MPIRUNS["mpich"], "-n", 2, PYTHON, write(tmp_path, script)]).stdout
    check_sums("\n".join(line for line in text.split("\n") if "again" not in line), 2)
    assert text.count("again 3>") == 2, text


def test_a_rank_that_contradicts_the_launcher(mpirun, tmp_path):
    """RANK and WORLD_SIZE, left in the shell by an earlier job, would let each process train alone."""
    script = SUM.replace(', init_method="tutti://"', "")
    left = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    ended = run([*mpirun, "-n", 2, PYTHON, write(tmp_path, script)], expected=1, **left)
    assert "WORLD_SIZE=1 and " in ended.stderr and "_SIZE=2 disagree: unset RANK and WORLD_SIZE" in ended.stderr, ended


def test_an_argument_that_contradicts_the_launcher(tmp_path):
    script = SUM.replace('"tutti://"', '"tutti://", rank=0, world_size=5')
    ended = run([*MPIRUNS["mpich"], "-n", 2, PYTHON, write(tmp_path, script)], expected=1)
    assert "world_size=5, and the launcher pmi says world_size=2" in ended.stderr, ended.stderr
    ended = forked_python.run([write(tmp_path, script)], expected=1)
    assert "world_size=5, and no launcher has started this process, so world_size=1" in ended.stderr, ended.stderr


@pytest.mark.parametrize("port", ["abc", "0", "65536"])
def test_a_port_that_is_none(port, tmp_path):
    variables = {"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ended = forked_python.run([write(tmp_path, SUM)], expected=1, **variables)
    assert f"MASTER_PORT={port}: expected a port from 1 to 65535" in ended.stderr, ended.stderr


def test_several_nodes_without_an_address(tmp_path):
    variables = {"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_LOCAL_RANK": "0", "TUTTI_LOCAL_SIZE": "1"}
    ended = forked_python.run([write(tmp_path, SUM)], expected=1, **variables)
    assert "ranks are on several nodes" in ended.stderr and "or MASTER_ADDR=host" in ended.stderr, ended.stderr


def test_the_rendezvous_of_tutti_comes_before_an_address_for_torch(tmp_path):
    variables = {"TUTTI_RANK": "0", "TUTTI_SIZE": "2", "TUTTI_LOCAL_RANK": "0", "TUTTI_LOCAL_SIZE": "1",
                 "MASTER_ADDR": "left.from.yesterday", "TUTTI_RENDEZVOUS": "node7:4711"}
    script = "from tutti.torch import _core, _launch\nprint(_launch.address(_core()))"
    ended = forked_python.run([write(tmp_path, script)], **variables)
    assert "('node7', 4711)" in ended.stdout, ended.stdout


# ---- elastic ----

# Rank 1 kills itself in the first life; the others find that out by an error, and torchrun starts all again.
KILLED = SUM.replace("dist.all_reduce", """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    while True:
        dist.all_reduce(torch.ones(1000))
dist.all_reduce""", 1)


def test_torchrun_restarts_after_a_killed_worker(tmp_path):
    ended = run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "--monitor-interval", 0.1,
                 write(tmp_path, KILLED)])
    check_sums(ended.stdout, 2)


# One rank ends before it makes the process group, while the other waits for it. Both lives have the same store.
ENDS_EARLY = SUM.replace("dist.init_process_group", """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == os.environ["VICTIM"]:
    import time
    time.sleep(2)
    sys.exit(1)
dist.init_process_group""", 1)


@pytest.mark.parametrize("victim", [0, 1])
def test_torchrun_restarts_after_a_worker_that_never_came(tmp_path, victim):
    ended = run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "--monitor-interval", 0.1,
                 write(tmp_path, ENDS_EARLY)], VICTIM=str(victim))
    check_sums(ended.stdout, 2)


def test_torchrun_reports_a_killed_worker(tmp_path):
    """The survivors' errors may be missing, since torchrun ends them; its report has the killed worker, and them."""
    ended = run([*TORCHRUN, "--standalone", "--nproc-per-node", 2, write(tmp_path, KILLED)], expected=1)
    report = ended.stderr.partition("FAILED")[2]
    codes = dict(re.findall(r"rank +: (\d) .*\n +exitcode +: (-?\d+)", report))
    assert codes["1"] == "-9" and codes.get("0") in ("1", "-15", None), ended.stderr
    if codes.get("0") == "1":
        assert "DistBackendError: tutti: UNAVAILABLE: rank 1 died" in ended.stderr, ended.stderr


# Every life of a worker leaves a file <rank>-<size>-<process id>. The job ends well in a world of one that comes after a
# world of two.
GROWS_AND_SHRINKS = """
import os, sys, torch, torch.distributed as dist
import tutti.torch
torch.set_num_threads(1)
dist.init_process_group("tutti")
rank, size = dist.get_rank(), dist.get_world_size()
open(f"{sys.argv[1]}/{rank}-{size}-{os.getpid()}", "w").close()
had_two = any("-2-" in name for name in os.listdir(sys.argv[1]))
while not (size == 1 and had_two):
    dist.all_reduce(tensor := torch.ones(1000))
    assert tensor[0] == size
dist.destroy_process_group()
"""


def test_torchrun_changes_the_size_of_the_world(tmp_path):
    script = write(tmp_path, GROWS_AND_SHRINKS)
    lives = tmp_path / "lives"
    lives.mkdir()
    settings = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"
    with socket.socket() as free:  # the first agent serves at a port that all agents are given
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    command = [*TORCHRUN, "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "3", "--monitor-interval", "0.1",
               "--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", endpoint,
               "--rdzv-conf", settings, "--local-addr", "localhost", script, str(lives)]
    agents = []

    def start():
        log = open(tmp_path / f"agent{len(agents)}", "w")
        # torch 2.11 gives its agents' store to the workers, and then never tells a node that joins later where it is.
        own_store = environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        agents.append(subprocess.Popen(command, env=own_store, stdout=log, stderr=log, start_new_session=True))

    def logs():
        return "\n".join((tmp_path / f"agent{i}").read_text()[-4000:] for i in range(len(agents)))

    def wait_for(what, condition):
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, f"not within {LIMIT} s: {what}\n{logs()}"
            time.sleep(0.05)

    def workers(size):
        return {int(name.split("-")[0]): int(name.split("-")[2]) for name in os.listdir(lives) if f"-{size}-" in name}

    try:
        start()
        wait_for("a world of one", lambda: workers(1))
        start()
        wait_for("a world of two", lambda: len(workers(2)) == 2)
        # The second node is lost: its agent, and its worker, a child of the agent.
        children = open(f"/proc/{agents[1].pid}/task/{agents[1].pid}/children").read().split()
        os.kill(agents[1].pid, signal.SIGKILL)
        for child in set(map(int, children)) & set(workers(2).values()):
            os.kill(child, signal.SIGKILL)
        assert agents[0].wait(LIMIT) == 0, logs()
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        for pid in {*workers(1).values(), *workers(2).values()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert len([name for name in os.listdir(lives) if "-1-" in name]) >= 2
