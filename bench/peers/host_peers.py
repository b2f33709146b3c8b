"""How each library is started with one rank on each of several hosts (bench/hosts/links.py), and its best settings there."""

import os
import pathlib
import sys
import tempfile

from peers import (DEPS, GLOO, HERE, MPI_AS_ROOT, OF_WHEELS, PYTHON, ROOT, TIMEOUT_S, UCX, failed, mpi_program, rows_in, rows_of,
                   tutti_command, tutti_rows)

sys.path.append(str(ROOT / "bench/hosts"))
from links import Hosts, make_secret, run_ranks

AGENT = HERE / "host_agent.sh"
DEVICE = Hosts.DEVICE
# Open MPI: a waiting rank yields, even where there is a core for each rank: the kernel's work for packets needs the cores, too, and
# a rank that shares one with another program would wait for its time slice, 8 ms for 4 B.
OPEN_MPI = ["--mca", "mpi_yield_when_idle", "1", "--mca", "coll_tuned_use_dynamic_rules", "1",
            "--mca", "coll_tuned_dynamic_rules_filename", HERE / "openmpi_hosts.rules"]


def add_bin(parser):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bench/bin", metavar="FOLDER",
                        help="where the programs tutti and delay_switch are")


def need_programs(parser, options, names):
    """Makes options.bin absolute; ends the script where the folder lacks one of the programs."""
    options.bin = options.bin.resolve()
    for name in names:
        if not (options.bin / name).exists():
            parser.error(f"{options.bin / name} is missing: run `cmake --workflow --preset bench`")


def output_of_ranks(run, command, environment_of):
    """What the ranks print, of which each host runs one."""
    command = [str(word) for word in command]
    with tempfile.TemporaryFile("w+") as output:
        try:
            run_ranks([run.hosts.command(rank, command) for rank in range(run.ranks)],
                      [environment_of(rank) for rank in range(run.ranks)], TIMEOUT_S, stdout=output)
        except RuntimeError as error:
            what, _, errors = str(error).partition("\n")
            raise failed(command, what, errors)
        output.seek(0)
        return output.read()


def tutti(program, schedule=None, codec=None, **variables):
    """`variables` are added to the environment of the ranks."""
    def start(run):
        if codec and run.collective != "all_reduce":
            return []
        command = [*tutti_command(program, run, "arena"), *(["--schedule", schedule] if schedule else []),
                   *(["--codec", codec, "--no-rewrite"] if codec else [])]
        with tempfile.TemporaryDirectory() as folder:
            secret = make_secret(pathlib.Path(folder))
            output = output_of_ranks(run, command, lambda rank: {**run.hosts.environment(rank, secret), **variables})
        return tutti_rows(program, output)
    return start


def gloo(run):
    command = [PYTHON, GLOO, run.ranks, run.collective, *run.arguments()]
    with tempfile.TemporaryDirectory() as folder:
        return rows_in(output_of_ranks(run, command, lambda rank: {
            **os.environ, "GLOO_BENCH_RANK": str(rank), "GLOO_BENCH_STORE": f"{folder}/store",
            "GLOO_SOCKET_IFNAME": DEVICE}))


def launched(run, launcher, environment=None):
    """The rows of a program whose launcher, on the first host, starts the ranks on the others through an agent."""
    command = " ".join(str(word) for word in launcher)
    with tempfile.TemporaryDirectory() as folder:  # launchers leave files behind
        return rows_of([AGENT, run.hosts.address(0), command],
                       {**(environment or {}), "HOST_AGENT_PREFIX": run.hosts.prefix, "TMPDIR": folder})


def open_mpi(transport, options):
    def start(run):
        hosts = ",".join(f"{run.hosts.address(rank)}:1" for rank in range(run.ranks))
        return launched(run, [
            DEPS / "peers-openmpi/bin/mpirun", "-n", run.ranks, "--host", hosts, "--bind-to", "none",
            "--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", AGENT, "--prtemca", "oob_tcp_if_include", DEVICE,
            *OPEN_MPI, *options, mpi_program("peers-openmpi"), run.collective, "openmpi", transport,
            *run.arguments()], MPI_AS_ROOT)
    return start


def mpich(netmod, variables):
    def start(run):
        hosts = ",".join(run.hosts.address(rank) for rank in range(run.ranks))
        # MPICH finds that all hosts have one kernel, and would use shared memory between them.
        settings = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": netmod, **variables}
        return launched(run, [
            DEPS / "peers-mpich/bin/mpiexec", "-n", run.ranks, "-ppn", "1", "-hosts", hosts, "-iface", DEVICE,
            "-launcher", "ssh", "-launcher-exec", AGENT,
            *[word for name, value in settings.items() for word in ("-genv", name, value)],
            mpi_program("peers-mpich"), run.collective, "mpich", netmod, *run.arguments()])
    return start


# Messages are sent at once, not announced and then fetched by their receiver: hosts that send each other large messages
# would take turns. At 100 Mb/s MPI_Sendrecv of 2 MB would take 460 ms with Open MPI, not 176, and at 1 Gb/s all_reduce of
# 16 MB over MPICH's UCX 224, not 156. Open MPI's own TCP allocates memory for messages of the largest size sent at once.
OVER_UCX = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": DEVICE, "UCX_RNDV_THRESH": "inf"}
AT_ONCE_BYTES = 32 << 20
OVER_TCP = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", DEVICE,
            "--mca", "btl_tcp_eager_limit", AT_ONCE_BYTES, "--mca", "btl_tcp_max_send_size", 2 * AT_ONCE_BYTES]

# Name in the tables → function of a Run that returns rows.
PEERS = {
    "openmpi-tcp": open_mpi("tcp", OVER_TCP),
    "openmpi-ucx": open_mpi("ucx", [*UCX, *[word for name, value in OVER_UCX.items() for word in
                                            ("-x", f"{name}={value}")]]),
    "mpich-ucx": mpich("ucx", OVER_UCX),
    "mpich-ofi": mpich("ofi", {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": DEVICE}),
    "gloo": gloo,
}
# What a page says of the settings above.
SETTINGS = (f"{OF_WHEELS} The MPIs send large messages at once, and ranks of Open MPI yield while they wait; its all_reduce is a "
            "ring from 4 MB on with 3 ranks or more. All other algorithms are the libraries' own defaults "
            "(`bench/peers/host_peers.py` has the settings, and why).")
MPIS = ("openmpi-tcp", "openmpi-ucx", "mpich-ucx", "mpich-ofi")
