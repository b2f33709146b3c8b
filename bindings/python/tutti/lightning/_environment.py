"""The cluster environment of launchers that Lightning does not know: mpirun of Open MPI and MPICH, ``tutti launch``."""

import functools
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch import _launch

_BY_LIGHTNING = ("single", "torchrun", "slurm")  # launchers that Lightning knows; "single": none has started the process


def _identity() -> tuple[int, int, int, int, str]:
    """Rank, size, local rank, local size and the name of the launcher."""
    return tutti.torch._core().launcher_identity()


class LauncherEnvironment:
    """Takes ranks from the launcher's own variables, as ``init_method="tutti://"`` does, by which the ranks meet."""

    creates_processes_externally = True

    def __init__(self, any_devices: bool = False) -> None:
        """``any_devices``: the Trainer need not ask for as many processes as the launcher has started."""
        super().__init__()
        self._any_devices = any_devices

    @functools.cached_property
    def _identity(self) -> tuple[int, int, int, int, str]:
        return _identity()

    @functools.cached_property
    def _main(self) -> tuple[str, int]:
        """Where Lightning's own strategies meet. ValueError where nothing says so, and there are several nodes.

        On one node a call of all ranks, so that jobs that run there at the same time have ports of their own.
        """
        core = tutti.torch._core()
        if self.local_size() < self.world_size() or _launch.address_counts(core):
            return _launch.address(core)
        return "127.0.0.1", _launch.port_on_this_node(core, self.global_rank())

    @property
    def main_address(self) -> str:
        return self._main[0]

    @property
    def main_port(self) -> int:
        return self._main[1]

    @staticmethod
    def detect() -> bool:
        """Whether a launcher that Lightning does not know has started this process."""
        if "LOCAL_RANK" in os.environ and "RANK" not in os.environ:
            return False  # Lightning itself has started this process
        return _identity()[4] not in _BY_LIGHTNING

    def global_rank(self) -> int:
        return self._identity[0]

    def world_size(self) -> int:
        return self._identity[1]

    def local_rank(self) -> int:
        return self._identity[2]

    def local_size(self) -> int:
        """The number of ranks on this node."""
        return self._identity[3]

    def launcher(self) -> str:
        """The launcher's name."""
        return self._identity[4]

    def node_rank(self) -> int:
        if "GROUP_RANK" in os.environ:  # of torchrun
            return int(os.environ["GROUP_RANK"])
        # Ranks may go round the nodes (mpirun --map-by node): the first rank of a node is on node 0 only if it is rank 0.
        is_first_elsewhere = self.local_rank() == 0 and self.global_rank() > 0
        return max(int(is_first_elsewhere), self.global_rank() // self.local_size())

    def set_global_rank(self, rank: int) -> None:
        """Changes nothing: the launcher gives ranks."""

    def set_world_size(self, size: int) -> None:
        """Changes nothing: the launcher says how many ranks there are."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """ValueError where the Trainer asks for another number of processes than the launcher has started."""
        rank, size, _, local_size, launcher = self._identity
        if self._any_devices:
            return
        if (num_devices, num_devices * num_nodes) != (local_size, size):
            raise ValueError(
                f"rank {rank}: Trainer(devices={num_devices}, num_nodes={num_nodes}) asks for {num_devices * num_nodes} "
                f"processes, and {launcher} has started {size}, of them {local_size} on this machine: say "
                f"devices={local_size}, num_nodes={size // local_size}")


def started_by(environment: Any) -> LauncherEnvironment | None:
    """The launcher, torchrun among them, that has started this process; None where another ``environment`` says who it is."""
    if isinstance(environment, LauncherEnvironment):
        return environment
    return LauncherEnvironment() if type(environment).__name__ == "TorchElasticEnvironment" else None


def check_backend(strategy: Any, backend: str | None) -> None:
    """Raises ValueError where the ``process_group_backend`` of ``strategy`` is another one than Tutti's."""
    if "tutti" not in str(backend).lower():
        raise ValueError(f"{type(strategy).__name__}: process_group_backend={backend!r}; the strategy exchanges on the "
                         "backend tutti: leave process_group_backend out")


def check_timeout(strategy: Any, timeout: Any) -> None:
    """Raises TypeError unless the ``timeout`` of ``strategy`` is a timedelta, or None for the default."""
    if not isinstance(timeout, timedelta | None):
        raise TypeError(f"{type(strategy).__name__}: timeout is {timeout!r}; give a datetime.timedelta, such as "
                        "timedelta(minutes=5)")


def make_group(environment: Any, backend: str, timeout: timedelta | None, device: torch.device) -> None:
    """Makes the default process group where a launcher says who this process is; Lightning makes the group elsewhere.

    ``device`` is that on which this process trains.
    """
    if isinstance(environment, LauncherEnvironment) and not dist.is_initialized():
        dist.init_process_group(backend, init_method="tutti://", timeout=timeout,
                                device_id=None if device.type == "cpu" else device)
