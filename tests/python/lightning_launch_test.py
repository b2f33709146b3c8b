"""A script of Lightning under every launcher, and in a notebook, as users start it."""

import contextlib
import re
import shutil
import socket

import pytest

import forked_python
from launchers import PYTHON, TORCHRUN, run, write

forked_python.import_once("torch._dynamo", "pytorch_lightning", "tutti.lightning")

SCRIPT = """
import os, sys, torch, torch.distributed as dist
import pytorch_lightning as pl
import tutti.lightning
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def main(strategy="bagua", devices=2):
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.eye(4).repeat(8, 1)), batch_size=2)
    trainer = pl.Trainer(strategy=strategy, accelerator="cpu", devices=devices, max_epochs=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    model = Model()
    trainer.fit(model, data)
    lr = trainer.optimizers[0].param_groups[0]["lr"] if trainer.optimizers else 0.1  # a process that spawned the ranks
    os.write(1, f"<{strategy} rank {trainer.global_rank} of {trainer.world_size} step {trainer.global_step} lr {lr:.1f} "
                f"{model.net.weight.sum():.4f}>\\n".encode())

if __name__ == "__main__":
    for strategy, devices in zip(sys.argv[1::2], sys.argv[2::2]):
        main(strategy, int(devices))
        if dist.is_initialized():  # the next strategy makes a group of its own
            dist.destroy_process_group()
"""


def check(text, strategy, ranks, steps, lr=0.1, world=None):
    lines = sorted(line for line in text.split("\n") if line.startswith(f"<{strategy} rank"))
    assert [line.split()[2] for line in lines] == [str(rank) for rank in range(ranks)], text
    assert all(f"of {world or ranks} step {steps} lr {lr:.1f}" in line for line in lines), text
    assert len({line.split()[-1] for line in lines}) == 1, text


def test_python_starts_the_ranks(tmp_path):
    check(run([PYTHON, write(tmp_path, SCRIPT), "bagua", 2]).stdout, "bagua", 2, 8)


@pytest.mark.parametrize("strategy", ["tutti:bytegrad", "ddp_sharded"])
def test_a_script_starts_its_other_rank(strategy, tmp_path):
    check(forked_python.run([write(tmp_path, SCRIPT), strategy, 2]).stdout, strategy, 2, 8)


def test_a_script_in_which_an_mpi_has_begun_without_mpirun(tmp_path):
    ended = forked_python.run([write(tmp_path, SCRIPT), "bagua", 2], PMIX_RANK="0")  # as mpi4py with Open MPI 4 leaves it
    check(ended.stdout, "bagua", 2, 8)


@pytest.mark.parametrize("strategy", ["bagua_spawn", "tutti_fork:decentralized"])
def test_processes_of_python(strategy, tmp_path):
    text = forked_python.run([write(tmp_path, SCRIPT), strategy, 2]).stdout
    check(text, strategy, 1, 0, world=2)  # the process that spawned them


def test_torchrun(tmp_path):
    text = run([*TORCHRUN, "--standalone", "--nproc-per-node", 3, write(tmp_path, SCRIPT), "tutti:decentralized", 3,
                "horovod", 1]).stdout
    check(text, "tutti:decentralized", 3, 6)
    check(text, "horovod", 3, 6, lr=0.3)


TOO_MANY_DEVICES = """
    try:
        main("bagua", 3)
    except Exception as error:
        os.write(1, f"<error {error}>\\n".encode())
"""


MPIRUNS = ["mpirun.openmpi --allow-run-as-root --oversubscribe", "mpirun.mpich"]


@pytest.mark.parametrize("mpirun", MPIRUNS)
def test_mpirun(mpirun, tmp_path):
    command = [*mpirun.split(), "-n", 2, PYTHON, write(tmp_path, SCRIPT + TOO_MANY_DEVICES)]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ended = run([*command, "horovod", 1, "bagua", 2, "ddp", 2])
    check(ended.stdout, "horovod", 2, 8, lr=0.2)
    for strategy in ("bagua", "ddp"):
        check(ended.stdout, strategy, 2, 8)
    wrong = [line for line in ended.stdout.split("\n") if line.startswith("<error")]
    assert len(wrong) == 2, ended
    assert all("Trainer(devices=3, num_nodes=1) asks for 3 processes" in line for line in wrong), wrong
    assert all("say devices=2, num_nodes=1" in line for line in wrong), wrong


WHERE_DDP_MEETS = """
import os
import pytorch_lightning
import tutti.lightning
from tutti.lightning.of_pytorch_lightning import TuttiEnvironment
environment = TuttiEnvironment()
os.write(1, f"{environment.main_address} {environment.main_port}\\n".encode())
"""


def test_where_ddp_meets_under_mpirun():
    mpirun = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}

    def place(size, expected=0, **more):
        ended = forked_python.run(["-c", WHERE_DDP_MEETS], expected, OMPI_COMM_WORLD_SIZE=size, **mpirun, **more)
        return ended.stdout.split() or ended.stderr

    assert "nothing says where rank 0 is" in (error := place("4", expected=1)) and "MASTER_ADDR=host" in error, error
    assert place("4", MASTER_ADDR="node1") == ["node1", "29500"]
    unknown_nodes = {"TUTTI_RANK": "1", "TUTTI_SIZE": "2"}
    assert place("2", MASTER_ADDR="node1", MASTER_PORT="4711", **unknown_nodes) == ["node1", "4711"]
    assert place("4", TUTTI_RENDEZVOUS="node1:29600") == ["node1", "29600"]


def test_ddp_of_two_jobs_meets_at_two_ports():
    """The first job's port is still in use when the second one comes; the variables are those of a third job."""
    command = [*MPIRUNS[1].split(), "-n", 2, PYTHON, "-c", WHERE_DDP_MEETS]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    with socket.socket() as third, contextlib.ExitStack() as in_use:
        third.bind(("127.0.0.1", 0))
        left = {"MASTER_ADDR": "left.from.yesterday", "MASTER_PORT": str(third.getsockname()[1])}
        for _ in range(2):
            text = run(command, **left).stdout
            # The launcher and libraries may print lines, too.
            ports = re.findall(r"^127\.0\.0\.1 (\d+)$", text, re.MULTILINE)
            assert len(ports) == 2 and ports[0] == ports[1], text
            port = ports[0]
            in_use.enter_context(socket.socket()).bind(("", int(port)))  # fails where a socket has the port


def test_horovod_without_a_launcher(tmp_path):
    script = write(tmp_path, SCRIPT)
    check(forked_python.run([script, "horovod", 1]).stdout, "horovod", 1, 16)
    assert "start the script by horovodrun -np" in forked_python.run([script, "horovod", 2], expected=1).stderr


def test_a_notebook(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [SCRIPT.rpartition("\nif __name__")[0], 'main("ddp_notebook")', 'main("bagua_notebook")', 'main("dp")']
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3",
                                     resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises when a cell does
