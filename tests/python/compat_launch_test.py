"""The launchers baguarun, horovodrun and bagua.distributed.launch; other hosts are reached by an ssh of this test."""

import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import time
import types

import pytest

from hosts import make_hosts
from launchers import LIMIT, PYTHON, environment, run, wait_for, write
from tutti.compat.launch import baguarun, horovod_rank, horovodrun, ssh

COMPAT = [PYTHON, "-m", "tutti.compat"]
SOURCES = pathlib.Path(__file__).parents[2]

# A script for Bagua, and one for Horovod. Each writes its line at once, since ranks share the output.
BAGUA = """
import os, sys, torch, torch.distributed as dist
import bagua.torch_api as bagua
torch.set_num_threads(1)
bagua.init_process_group()
dist.all_reduce(tensor := torch.tensor([1.0 + bagua.get_rank()]))
os.write(1, f"<rank {bagua.get_rank()} of {bagua.get_world_size()}, {bagua.get_local_rank()} here, "
         f"sum {tensor[0]:.0f}; {sys.argv[1:]} {os.environ.get('TUTTI_AUTOTUNE')} "
         f"{os.environ.get('GIVEN')}>\\n".encode())
dist.destroy_process_group()
"""
HOROVOD = """
import os, sys, torch
import horovod.torch as hvd
torch.set_num_threads(1)
hvd.init()
for name in "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size":
    assert str(getattr(hvd, name)()) == os.environ["HOROVOD_" + name.upper()], name
total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum)
os.write(1, f"<rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} here, "
         f"sum {total[0]:.0f}; {sys.argv[1:]}>\\n".encode())
hvd.shutdown()
"""


def run_with(variables, *command, folder=None):
    """Runs a command with exactly these variables in its environment."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT, env=variables,
                          cwd=folder)


def lines_of(text):
    return sorted(line for line in text.split("\n") if "<rank" in line)


# ---- this machine ----


def test_bagua_distributed_launch(tmp_path):
    script = write(tmp_path, BAGUA)
    ended = run([*COMPAT, "-m", "bagua.distributed.launch", "--nproc_per_node=2", "--autotune_level", "1",
                 "--bagua_service_port", 29501, "--default_bucket_size", 1000, script, "--report_metrics"])
    assert lines_of(ended.stdout) == [
        f"<rank {rank} of 2, {rank} here, sum 3; ['--report_metrics'] 1 None>" for rank in range(2)
    ], ended
    said = [line for line in ended.stderr.split("\n") if line.startswith("bagua.distributed.launch:")]
    assert [line.split(":")[1] for line in said] == [
        " --bagua_service_port has no effect", " --default_bucket_size has no effect"
    ], ended.stderr


def test_bagua_distributed_launch_of_a_module_with_a_local_rank(tmp_path):
    write(tmp_path, "import bagua, sys; print(sys.argv[1:], __name__)", "trained.py")
    ended = run_with(environment(), *COMPAT, "-m", "bagua.distributed.launch", "--use_env", "--set_additional_flag",
                     "-m", "trained", "-m", folder=tmp_path)
    assert ended.stdout == "['--local_rank=0', '-m'] __main__\n", ended


def test_horovodrun(tmp_path):
    script = write(tmp_path, HOROVOD)
    ended = run([*COMPAT, "horovodrun", "-np", 2, "--gloo", PYTHON, "-W", "ignore", script, "-np"])
    assert lines_of(ended.stdout) == [f"<rank {rank} of 2, {rank} here, sum 3; ['-np']>" for rank in range(2)], ended
    assert "horovodrun: --gloo has no effect" in ended.stderr


def test_horovodrun_tells_that_a_rank_has_failed():
    ended = run([*COMPAT, "horovodrun", "-np", 1, "sh", "-c", "exit 7"], expected=1)
    assert re.search(r"exitcode *: 7", ended.stderr), ended.stderr


def test_mistakes_are_named():
    for arguments, text in [
        (["baguarun", "--nproc_per_node", 1, "x.py"], "expected --host_list host1:port,host2:port"),
        (["baguarun", "--host_list", "a:b", "--nproc_per_node", 1, "x.py"], "'a:b' is not host or host:port"),
        (["horovodrun", "-np", 3, "-H", "a:1,b:1", "python", "x.py"], "-np 3: the hosts have 2 slots together"),
        (["horovodrun", "-np", 0, "python", "x.py"], "-np 0: give 1 or more"),
        (["horovodrun", "-np", 1], "expected a command"),
        (["horovodrun", "-np", 1, "-H", "a:x", "python", "x.py"], "'a:x' is not host or host:slots"),
        (["horovodrun", "-np", 1, "--hostfile", "/nosuch", "python", "x.py"], "No such file or directory: '/nosuch'"),
        (["horovodrun", "-np", 2, "-H", "localhost:1,b:1", "python", "x.py"], "the first host is localhost, which"),
        (["baguarun", "--host_list", "127.0.0.1,b", "--nproc_per_node", 1, "x.py"], "an address by which b finds it"),
        (["horovodrun"], "required: -np/--num-proc"),
        (["--nosuch"], "expected a script, a launcher, -m module or -c command"),
    ]:
        assert text in run([*COMPAT, *arguments], expected=1).stderr, arguments


def test_the_page_lists_the_variables_that_hosts_get():
    page = (pathlib.Path(__file__).parents[2] / "docs/old_names.md").read_text()
    listed = re.search(r"whose names begin with (.*?), except", page, re.S)[1]
    assert re.findall(r"`(\w+)`", listed) == sorted(ssh._PASSED)


def test_hosts_get_no_variable_that_is_of_this_process_alone(monkeypatch):
    own = {"TUTTI_COMPAT": "1", "TUTTI_RANK": "3", "HOROVOD_LOCAL_RANK": "1"}
    passed = {"TUTTI_COMPAT_GPUS": "cpu", "TUTTI_TIMEOUT": "7"}
    for name, value in (own | passed).items():
        monkeypatch.setenv(name, value)
    found = ssh.environment_to_pass({"GIVEN": "1"})
    assert found.items() >= (passed | {"GIVEN": "1"}).items() and not own.keys() & found.keys()


def test_hosts_keep_their_own_variable_where_none_is_set_here(monkeypatch, capfd):
    monkeypatch.setenv("GIVEN", "1")
    monkeypatch.delenv("MISSING", raising=False)
    passed = []
    monkeypatch.setattr(ssh, "run_on_hosts", lambda commands, environment: passed.append(environment) or 0)
    words = "--host_list a,b --nproc_per_node 1 -x GIVEN -x MISSING -x EMPTY= -x SAID=2 x.py"
    assert baguarun.main(words.split()) == 0
    assert passed[0].items() >= {"GIVEN": "1", "EMPTY": "", "SAID": "2"}.items() and "MISSING" not in passed[0]
    assert capfd.readouterr().err == "baguarun: -x MISSING: not set here, so that hosts keep theirs\n"


def test_slots_are_filled_in_order():
    assert horovodrun.fill([("a", 2), ("b", 0), ("c", 4), ("d", 1)], 3) == [("a", 2), ("c", 1)]
    assert horovodrun.slots_of("a:2, b") == [("a", 2), ("b", 1)]
    assert baguarun.hosts_of("a:22,b", 2222) == [("a", 22), ("b", 2222)]


def test_hostfile(tmp_path):
    path = write(tmp_path, "# mine\na slots=2\n\nb  # one\n", "hosts")
    assert horovodrun.slots_in_file(path) == [("a", 2), ("b", 1)]
    with pytest.raises(ValueError, match="line 1 of .* is 'a slot=2', and not `host slots=N`"):
        horovodrun.slots_in_file(write(tmp_path, "a slot=2", "wrong"))


def test_python_runs_under_compat():
    for command, place in [("python x.py", 1), ("/bin/python3.11 -u -W ignore -m x", 4), ("python3 -c text", 1)]:
        words = command.split()
        assert horovodrun.under_compat(words) == [*words[:place], "-m", "tutti.compat", *words[place:]]
    assert horovodrun.under_compat(["./train.sh", "python"]) == ["./train.sh", "python"]


@pytest.mark.parametrize("options, before, script", [
    (["-um", "train"], ["-u"], ["-m", "train"]),
    (["-Ium", "train", "-m"], ["-Iu"], ["-m", "train", "-m"]),
    (["-mtrain"], [], ["-m", "train"]),
    (["-uc", "text"], ["-u"], ["-c", "text"]),
    (["-cif 1:\n  -m"], [], ["-c", "if 1:\n  -m"]),
    (["-Wmodule", "x.py"], ["-Wmodule"], ["x.py"]),
    (["-uX", "dev", "x.py"], ["-uX", "dev"], ["x.py"]),
    (["--check-hash-based-pycs", "always", "x.py"], ["--check-hash-based-pycs", "always"], ["x.py"]),
])
def test_options_of_python_in_one_word(options, before, script):
    assert horovodrun.under_compat(["python", *options]) == ["python", *before, "-m", "tutti.compat", *script]


def test_horovods_variables():
    third = horovod_rank.variables(3, 1, 1, [2, 2, 1])
    assert third == {"HOROVOD_RANK": "3", "HOROVOD_SIZE": "5", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
                     "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2"}


def test_bagua_net_needs_nothing(tmp_path):
    script = write(tmp_path, "")
    given = {"BAGUA_NET_IMPLEMENT": "TOKIO", "NCCL_NET_PLUGIN": "libbagua-net.so"}
    text = run([*COMPAT, script], **given).stderr
    assert text.startswith("tutti.compat: BAGUA_NET_IMPLEMENT, NCCL_NET_PLUGIN: Bagua-Net is not used"), text
    assert run([*COMPAT, script], **given, RANK="1").stderr == ""
    assert run([*COMPAT, script], NCCL_NET_PLUGIN="aws").stderr == ""


# ---- several hosts ----

# What sshd does, without a network: the command runs in a shell that has nothing of the caller's environment.
SSH = """#!/bin/sh
port=none
if [ "$1" = -p ]; then port=$2; shift 2; fi
host=$1; shift
echo "$host $port" >> {log}
case $host in
{cases}
*) echo "ssh: no host $host" >&2; exit 255 ;;
esac
exec $enter env -i PATH=/usr/bin:/bin TUTTI_NODE=$host sh -c "$*"
"""


def ssh_on_path(folder, enters):
    """Environment with an `ssh` that knows the hosts that are keys, and enters each by a command."""
    cases = "\n".join(f"{host}) enter='{enter}' ;;" for host, enter in enters.items())
    path = folder / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text(SSH.format(log=folder / "log", cases=cases))
    path.chmod(0o755)
    return environment(PATH=f"{path.parent}:{os.environ['PATH']}", GIVEN="from the caller")


@pytest.fixture(scope="module")
def hosts():
    yield from make_hosts()


@pytest.fixture
def two_hosts(hosts, tmp_path):
    addresses = ["10.78.0.1", "10.78.0.2"]
    enters = {address: f"ip netns exec {name}" for address, name in zip(addresses, hosts.names)}
    return addresses, ssh_on_path(tmp_path, enters)


def test_baguarun_on_two_hosts(two_hosts, tmp_path):
    (a, b), variables = two_hosts
    ended = run_with(variables, *COMPAT, "baguarun", "--host_list", f"{a}:1022,{b}:2022", "--nproc_per_node=1",
                     "--master_port=29533", "-x", "GIVEN", "--enable_bagua_net", write(tmp_path, BAGUA), "two words",
                     "it's")
    arguments = str(["two words", "it's"])
    assert lines_of(ended.stdout) == [
        f"{host}: <rank {rank} of 2, 0 here, sum 3; {arguments} None from the caller>"
        for rank, host in enumerate([a, b])
    ], ended
    assert ended.returncode == 0
    assert sorted((tmp_path / "log").read_text().split("\n")) == ["", f"{a} 1022", f"{b} 2022"]
    assert "baguarun: --enable_bagua_net has no effect" in ended.stderr


@pytest.mark.parametrize("launcher", [
    [*COMPAT, "horovodrun", "-np", "2", PYTHON],
    ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", *COMPAT]], ids=["horovodrun", "mpirun"])
def test_a_trainer_without_a_strategy_is_horovods(launcher, tmp_path):
    pytest.importorskip("lightning")
    if shutil.which(launcher[0]) is None:
        pytest.skip(f"{launcher[0]} is not installed")
    script = write(tmp_path, """
import os
from lightning.pytorch import Trainer
trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
os.write(1, f"<rank: {type(trainer.strategy).__name__} of {trainer.world_size}>\\n".encode())
""")
    ended = run([*launcher, script])
    assert lines_of(ended.stdout) == ["<rank: HorovodStrategy of 2>"] * 2, ended


def test_horovodrun_on_two_hosts(two_hosts, tmp_path):
    (a, b), variables = two_hosts
    ended = run_with(variables, *COMPAT, "horovodrun", "-np", 3, "-H", f"{a}:2,{b}:4", "-p", 2222, PYTHON,
                     write(tmp_path, HOROVOD))
    assert lines_of(ended.stdout) == [
        f"{a}: <rank 0 of 3, 0 here, sum 6; []>", f"{a}: <rank 1 of 3, 1 here, sum 6; []>",
        f"{b}: <rank 2 of 3, 0 here, sum 6; []>"
    ], ended
    assert sorted((tmp_path / "log").read_text().split("\n")) == ["", f"{a} 2222", f"{b} 2222"]


# An ssh that asks nothing, since the keys are those of the test.
OWN_KEYS = """#!/bin/sh
exec {ssh} -i {key} -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"
"""


@pytest.fixture
def real_sshd(hosts, tmp_path):
    """The environment of a launcher on the first host, whose ssh reaches a real sshd on both hosts at port 2222."""
    if shutil.which("sshd", path="/usr/sbin:/usr/bin") is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd: apt-get install openssh-server openssh-client")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    path = tmp_path / "own keys" / "ssh"
    path.parent.mkdir()
    path.write_text(OWN_KEYS.format(ssh=shutil.which("ssh"), key=key))
    path.chmod(0o755)
    os.makedirs("/run/sshd", exist_ok=True)
    daemons = []
    try:
        for index, name in enumerate(hosts.names):
            daemons.append(subprocess.Popen(
                ["ip", "netns", "exec", name, "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-p", "2222", "-h", key,
                 "-o", f"AuthorizedKeysFile={key}.pub", "-o", "PidFile=none", "-o", "StrictModes=no",
                 "-o", "PermitRootLogin=yes", "-o", f"SetEnv=TUTTI_NODE=host{index}"],
                stdout=subprocess.DEVNULL, stderr=open(tmp_path / f"sshd{index}", "w")))
        for index in range(2):
            end = time.monotonic() + LIMIT
            while "Server listening" not in (tmp_path / f"sshd{index}").read_text():
                assert time.monotonic() < end and daemons[index].poll() is None, (tmp_path / f"sshd{index}").read_text()
                time.sleep(0.01)
        yield environment(PATH=f"{path.parent}:{os.environ['PATH']}", GIVEN="from the caller")
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()


@pytest.mark.parametrize("command", ["baguarun", "horovodrun"])
def test_a_real_sshd(real_sshd, hosts, command, tmp_path):
    a, b = "10.78.0.1", "10.78.0.2"
    on_a = ["ip", "netns", "exec", hosts.names[0], *COMPAT]
    if command == "baguarun":
        words = ["baguarun", "--host_list", f"{a}:2222,{b}:2222", "--nproc_per_node=1", "--master_port=29534", "-x", "GIVEN",
                 write(tmp_path, BAGUA), "it's", "a $word"]
    else:
        words = ["horovodrun", "-np", 2, "-H", f"{a}:1,{b}:1", "-p", 2222, PYTHON, write(tmp_path, HOROVOD), "it's", "a $word"]
    ended = run_with(real_sshd, *on_a, *words)
    assert ended.returncode == 0, ended
    arguments = str(["it's", "a $word"]) + (" None from the caller" if command == "baguarun" else "")
    assert lines_of(ended.stdout) == [f"{host}: <rank {rank} of 2, 0 here, sum 3; {arguments}>"
                                      for rank, host in enumerate([a, b])], ended


def test_a_real_sshd_that_refuses(real_sshd, hosts, tmp_path):
    on_a = ["ip", "netns", "exec", hosts.names[0], *COMPAT]
    ended = run_with(real_sshd, *on_a, "baguarun", "--host_list", "10.78.0.1:2222,10.78.0.2:2223", "--nproc_per_node=1",
                     write(tmp_path, BAGUA))
    assert ended.returncode == 255 and "Connection refused" in ended.stderr, ended
    assert "host 10.78.0.2 ended with exit status 255 (ssh itself failed" in ended.stderr, ended


def commands_of_the_docs():
    """The commands that docs/old_names.md lists for starting a script."""
    section = (SOURCES / "docs" / "old_names.md").read_text().split("\n## ")[1]
    return re.findall(r"^\| `(.+?)` \|", section, re.M)


@pytest.mark.parametrize("command", commands_of_the_docs())
def test_a_command_of_the_docs(command, request, tmp_path):
    if "host1" in command:
        addresses, variables = request.getfixturevalue("two_hosts")
        for name, address in zip(["host1", "host2"], addresses):
            command = command.replace(name, address)
    else:
        variables = environment(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1")
    if shutil.which(command.split()[0]) is None and command.startswith("mpirun"):
        pytest.skip("mpirun is not installed: run .ci/install core")
    variables["PATH"] = f"{os.path.dirname(PYTHON)}:{variables['PATH']}"
    ended = run_with(variables, *command.split(), folder=SOURCES / "docs" / "examples")
    ranks = 1 if command == "python -m tutti.compat old_horovod.py" else 2
    found = re.findall(r"loss ([0-9.]+) on (\d+) ranks", ended.stdout)
    assert ended.returncode == 0 and len(found) == 1, ended
    assert float(found[0][0]) < 0.01 and int(found[0][1]) == ranks, found


# The fan-out alone. Each host writes its process id to a file of its name, and then does what the test says.
FAN_OUT = """
import sys
from tutti.compat.launch import ssh
folder, *actions = sys.argv[1:]
commands = [ssh.HostCommand(f"host{i}", None, [
    "sh", "-c", f"echo $$ > {folder}/new{i}; mv {folder}/new{i} {folder}/host{i}; {action}"
]) for i, action in enumerate(actions)]
sys.exit(ssh.run_on_hosts(commands, ssh.environment_to_pass({})))
"""


@pytest.fixture
def start_on_hosts(tmp_path):
    """A function that starts two actions on two hosts; they are ended when the test is, also by a failure."""
    started = []

    def start(*actions, stdout=subprocess.PIPE):
        variables = ssh_on_path(tmp_path, {f"host{index}": "" for index in range(2)})
        started.append(subprocess.Popen([PYTHON, "-c", FAN_OUT, str(tmp_path), *actions], env=variables, stdout=stdout,
                                        stderr=subprocess.PIPE, text=True))
        return started[0]

    yield start
    started[0].kill()  # the hosts end with it


def process_on(folder, host):
    """The process that has started on the host."""
    wait_for(f"a process on {host}", (folder / host).exists)
    return int((folder / host).read_text())


def wait_for_the_end_of(process):
    wait_for(f"the end of process {process}", lambda: not os.path.exists(f"/proc/{process}"))


def test_the_first_failure_ends_all(start_on_hosts, tmp_path):
    launcher = start_on_hosts("exec sleep 1000", f"while [ ! -e {tmp_path}/host0 ]; do sleep 0.02; done; exit 7")
    _, errors = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 7
    assert errors == "host host1 ended with exit status 7; all hosts are ended\n"
    wait_for_the_end_of(process_on(tmp_path, "host0"))


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_ends_all(number, status, start_on_hosts, tmp_path):
    launcher = start_on_hosts("exec sleep 1000", "exec sleep 1000")
    processes = [process_on(tmp_path, f"host{index}") for index in range(2)]
    launcher.send_signal(number)
    launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == status
    for process in processes:
        wait_for_the_end_of(process)


def test_lines_have_the_name_of_their_host(start_on_hosts):
    launcher = start_on_hosts("echo one; echo two >&2", "printf three")
    output, errors = launcher.communicate(timeout=LIMIT)
    assert (sorted(output.splitlines()), errors) == (["host0: one", "host1: three"], "host0: two\n")


@pytest.mark.parametrize("parts, lines", [
    ([b"a", b"b\nc", b"\n\nend"], [b"ab\n", b"c\n", b"\n", b"end\n"]),
    ([b"10%\r20", b"%\r", b"30%\r\nend\r\n"], [b"10%\r", b"20%\r", b"30%\r\n", b"end\r\n"]),
])
def test_lines_end_with_a_return_too(parts, lines):
    source = types.SimpleNamespace(read1=lambda _, parts=iter([*parts, b""]): next(parts))
    assert list(ssh._tagged(source, b"a: ")) == [b"a: " + line for line in lines]


def test_a_newline_that_comes_after_its_return_is_no_line():
    source = types.SimpleNamespace(read1=lambda _, parts=iter([b"a\r", b"\n", b"\nb\r", b"c", b""]): next(parts))
    assert list(ssh._tagged(source, b"x: ")) == [b"x: a\r", b"\n", b"x: \n", b"x: b\r", b"x: c\n"]


def test_a_progress_bar_is_shown_while_its_line_lasts(start_on_hosts):
    launcher = start_on_hosts("printf '10%%\\r'; exec sleep 1000", "exec sleep 1000")
    assert select.select([launcher.stdout], [], [], LIMIT)[0], f"nothing within {LIMIT} s"
    assert os.read(launcher.stdout.fileno(), 100) == b"host0: 10%\r"


def test_the_end_of_the_reader_ends_all(start_on_hosts, tmp_path):
    launcher = start_on_hosts("exec yes", "exec sleep 1000")
    assert launcher.stdout.readline() == "host0: y\n"
    processes = [process_on(tmp_path, f"host{index}") for index in range(2)]
    launcher.stdout.close()
    assert launcher.wait(LIMIT) == 128 + signal.SIGPIPE
    assert launcher.stderr.read() == "nobody reads what host host0 prints; all hosts are ended\n"
    for process in processes:
        wait_for_the_end_of(process)


def test_a_full_disk_ends_no_host_and_is_told(start_on_hosts):
    with open("/dev/full", "w") as full:
        launcher = start_on_hosts("seq 1 100000; echo went on >&2", "true", stdout=full)
    _, errors = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 1
    assert sorted(errors.splitlines()) == [
        "cannot print what host host0 prints: No space left on device; it is lost", "host0: went on"
    ]


def test_a_command_line_has_no_variable_but_pythonpath(tmp_path):
    """What the page says that other users can see."""
    variables = ssh_on_path(tmp_path, {}) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "x"), "WANDB_KEY": "seen"}
    (tmp_path / "bin" / "ssh").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/log\nexit 255\n')
    assert run_with(variables, *COMPAT, "horovodrun", "-np", 1, "-H", "a:1", "true").returncode == 255
    command = (tmp_path / "log").read_text()
    assert re.findall(r"\b([A-Z_]+)=", command) == ["PYTHONPATH"] and "seen" not in command, command
    page = (SOURCES / "docs" / "old_names.md").read_text()
    assert "unseen by other users, but for `PYTHONPATH`" in page


def test_an_unknown_host_is_named(tmp_path):
    variables = ssh_on_path(tmp_path, {})
    ended = run_with(variables, *COMPAT, "horovodrun", "-np", 1, "-H", "nosuch:1", "true")
    assert ended.returncode == 255
    told = "nosuch: ssh: no host nosuch\nhost nosuch ended with exit status 255 (ssh itself failed"
    assert told in ended.stderr, ended
