"""The strategy ``horovod``."""

import os
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from tutti.compat.horovod.torch import allgather, broadcast_object, broadcast_optimizer_state, world
from tutti.lightning._strategy import TuttiStrategy


def named_by_launcher(strategy: Any) -> Any:
    """``"horovod"`` where no strategy is named under horovodrun, whose ranks would train alone otherwise."""
    launched = strategy == "auto" and int(os.environ.get("HOROVOD_SIZE", "1")) > 1
    return "horovod" if launched else strategy


def devices_for(strategy: Any, devices: Any) -> Any:
    """What ``Trainer(devices=)`` means to ``strategy``: one device for each process of horovodrun, if none is named."""
    named = isinstance(strategy, str) and strategy.lower() == "horovod"
    return 1 if devices == "auto" and (named or isinstance(strategy, HorovodStrategy)) else devices


# The learning rates in a group of parameters: the present one, and those from which schedulers compute others.
_RATES = {"lr", "initial_lr", "max_lr", "min_lr"}


def scale_optimizer(optimizer: torch.optim.Optimizer, factor: int) -> None:
    """Multiplies the rates of ``optimizer``."""
    for group in optimizer.param_groups:
        for name in _RATES & group.keys():
            group[name] = group[name] * factor  # not in place: several groups may share one tensor


def _lists_of_rates(scheduler: Any) -> Iterator[tuple[Any, str]]:
    """The attributes that are rates of ``scheduler`` itself, and of the schedulers that it is made of."""
    for name in ("base_lrs", "max_lrs"):
        if hasattr(scheduler, name):
            yield scheduler, name
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _lists_of_rates(inner)


def scale_scheduler(scheduler: Any, factor: int) -> None:
    """Multiplies the rates that ``scheduler`` has of its own, and those of the schedulers that it is made of."""
    for owner, name in _lists_of_rates(scheduler):
        setattr(owner, name, [lr * factor for lr in getattr(owner, name)])


def _broadcast_schedulers(schedulers: list[Any]) -> None:
    """Gives all ranks the rates that ``schedulers`` have of their own on rank 0. Collective."""
    own = [rates for scheduler in schedulers for rates in _lists_of_rates(scheduler)]
    # As numbers: a tensor may be on the GPU of rank 0.
    numbers = [[float(lr) for lr in getattr(owner, name)] for owner, name in own]
    for (owner, name), rates in zip(own, broadcast_object(numbers, 0)):
        setattr(owner, name, rates)


class HorovodStrategy(TuttiStrategy):
    """Lightning's HorovodStrategy, on Tutti: as many processes as ``horovodrun`` or ``mpirun`` has started.

    As Horovod's users expect, ``scale_lr`` multiplies the learning rates by the number of processes, and ``all_gather``
    concatenates along the first dimension. ``Trainer(devices=1)`` (or none) names the device of each process.
    """

    def __init__(
        self,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        *,
        scale_lr: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            accelerator=accelerator, parallel_devices=parallel_devices,
            cluster_environment=self.classes.TuttiEnvironment(any_devices=True), checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin, **options)
        self._scale_lr = scale_lr

    @property
    def parallel_devices(self) -> list[torch.device] | None:
        """One device for each process on this machine, though the Trainer names that of one process."""
        devices = self._parallel_devices
        local_size = self.cluster_environment.local_size() if self.cluster_environment else 1
        if not devices or len(devices) == local_size:
            return devices
        if len(devices) > 1:
            raise self.classes.MisconfigurationException(
                f"Trainer(devices={len(devices)}, strategy=\"horovod\"), and horovodrun or mpirun has started {local_size} "
                "processes on this machine: leave devices out, or say devices=1, and start the script by horovodrun -np")
        if devices[0].type != "cuda":
            return devices * local_size
        gpus = torch.cuda.device_count()
        if gpus == 1 and "CUDA_VISIBLE_DEVICES" in os.environ:  # the launcher gives each process a GPU of its own
            return devices * local_size
        if gpus < local_size:
            raise self.classes.MisconfigurationException(
                f"horovodrun or mpirun has started {local_size} processes on this machine, which has {gpus} GPUs: start one "
                "for each GPU, or say Trainer(accelerator=\"cpu\")")
        return [torch.device("cuda", index) for index in range(local_size)]

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        self._parallel_devices = devices

    @property
    def num_nodes(self) -> int:
        return self.world_size // self.cluster_environment.local_size()

    @num_nodes.setter
    def num_nodes(self, num_nodes: int) -> None:
        if num_nodes > 1:
            raise self.classes.MisconfigurationException(
                f"Trainer(num_nodes={num_nodes}) is not for the strategy horovod, whose processes horovodrun or mpirun "
                "starts on all nodes: leave num_nodes out")

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    def setup_distributed(self) -> None:
        super().setup_distributed()
        world.init()  # Lightning's strategy did so for scripts that call hvd.rank() in a hook

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        # Rank 0 alone may have loaded a state or options, as Lightning 1 let it.
        for optimizer in self.optimizers:
            broadcast_optimizer_state(optimizer, 0)
        _broadcast_schedulers([config.scheduler for config in self.lr_scheduler_configs])
        if not self._scale_lr:
            return
        new = [optimizer for optimizer in self.optimizers if not hasattr(optimizer, "scaled_by_horovod")]
        for optimizer in new:  # configure_optimizers may return the optimizer of an earlier fit
            optimizer.scaled_by_horovod = self.world_size
            scale_optimizer(optimizer, self.world_size)
        for config in self.lr_scheduler_configs:
            # A scheduler of an optimizer that was scaled before was scaled with it, or is made from its rates.
            if any(optimizer is getattr(config.scheduler, "optimizer", optimizer) for optimizer in new):
                scale_scheduler(config.scheduler, self.world_size)

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """The tensors of all ranks, concatenated on dimension 0, where they may differ."""
        if group not in (None, dist.group.WORLD):
            raise ValueError("HorovodStrategy.all_gather: group is a group of some ranks, and Horovod gathers over all: leave "
                             "group out, or use torch.distributed.all_gather")
        with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
            return allgather(tensor)
