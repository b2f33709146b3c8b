"""The strategies ``dp`` and ``ddp2``: one process splits each batch over the devices of its machine."""

from collections.abc import Callable
from typing import Any

import torch

from tutti.lightning import _pieces
from tutti.lightning._environment import started_by
from tutti.lightning._strategy import Remade, TuttiStrategy


class _SplitsBatches:
    """Calls each step with one piece of the batch for each device, and ``*_step_end`` with the gathered outputs."""

    classes: Any
    calls_step_end = True

    def setup_environment(self) -> None:
        devices = len(self.parallel_devices)
        if self.root_device.type != "cpu" and devices > 1:
            raise self.classes.MisconfigurationException(
                f"the strategy {self.name} splits batches over devices of the CPU only, and Trainer(devices={devices}) names "
                f"{devices} GPUs, to which it would have to copy all weights in each step: use strategy=\"ddp\" with one "
                f"process for each GPU, and divide the batch size of the DataLoader by {devices}, or say devices=1")
        super().setup_environment()

    def setup(self, trainer: Any) -> None:
        devices, module = len(self.parallel_devices), self.lightning_module
        if trainer.state.fn == "fit" and devices > 1 and not module.automatic_optimization:
            raise self.classes.MisconfigurationException(
                f"{type(module).__name__} has automatic_optimization = False, and the strategy {self.name} calls training_step "
                f"once for each of {devices} devices, so that each optimizer would make {devices} steps in a batch: use "
                f"strategy=\"ddp\" and divide the batch size of the DataLoader by {devices}, or say devices=1")
        super().setup(trainer)

    def training_step(self, *arguments: Any, **keywords: Any) -> Any:
        return self._in_pieces("training_step", super().training_step, arguments, keywords)

    def validation_step(self, *arguments: Any, **keywords: Any) -> Any:
        return self._in_pieces("validation_step", super().validation_step, arguments, keywords)

    def test_step(self, *arguments: Any, **keywords: Any) -> Any:
        return self._in_pieces("test_step", super().test_step, arguments, keywords)

    def predict_step(self, *arguments: Any, **keywords: Any) -> Any:
        return self._in_pieces("predict_step", super().predict_step, arguments, keywords)

    def _in_pieces(self, name: str, step: Callable[..., Any], arguments: tuple, keywords: dict[str, Any]) -> Any:
        """Lets ``step``, which calls the module's method ``name``, call it with one piece after the other."""
        module = self.lightning_module
        of_module = getattr(module, name)
        step_end = getattr(module, f"{name}_end", None)
        logged = module.trainer._results  # None where a step cannot log

        def of_piece(*some: Any, **named: Any) -> Any:
            _weigh_by(logged, some[0])
            return of_module(*some, **named)

        all_pieces = _pieces.in_pieces(of_piece, len(self.parallel_devices), f"{type(module).__name__}.{name}")

        def method(*some: Any, **named: Any) -> Any:
            output = all_pieces(*some, **named)
            _weigh_by(logged, some[0])
            if callable(step_end):
                changed = step_end(output)
                output = output if changed is None else changed
            return _with_mean_loss(output) if name == "training_step" else output

        # Found before the method of the class, also behind the forward of DistributedDataParallel.
        own = vars(module).get(name)
        vars(module)[name] = method
        try:
            return step(*arguments, **keywords)
        finally:
            vars(module).pop(name)
            if own is not None:
                vars(module)[name] = own


def _weigh_by(logged: Any, batch: Any) -> None:
    """Lets what is ``logged`` from here on count in means as many times as ``batch``, a whole one or a piece, has samples."""
    if logged is not None:
        logged.batch, logged.batch_size = batch, None


def _with_mean_loss(output: Any) -> Any:
    """The output of a training step, whose loss is one number: the mean over the pieces."""
    if isinstance(output, torch.Tensor):
        return output.mean()
    if isinstance(output, dict) and isinstance(output.get("loss"), torch.Tensor):
        return {**output, "loss": output["loss"].mean()}
    return output


class DataParallelStrategy(_SplitsBatches, Remade):
    """Lightning's DataParallelStrategy (``dp``): one process, which splits each batch over ``devices``.

    The batch size is that of the whole process. ``training_step`` and the other steps see a piece of the batch;
    ``training_step_end``, ``validation_step_end`` and ``test_step_end`` see the outputs of all pieces, gathered. On CPU
    devices the pieces run one after the other, so ``dp`` is for old scripts, not for speed.
    """

    name = "dp"
    global_rank = local_rank = node_rank = 0
    world_size = 1
    num_nodes = 1  # what the Trainer asks for

    def __init__(
        self,
        accelerator: Any = None,
        parallel_devices: list[torch.device] | None = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        super().__init__(accelerator=accelerator, parallel_devices=parallel_devices, checkpoint_io=checkpoint_io,
                         precision_plugin=precision_plugin)

    def setup_environment(self) -> None:
        precision = str(self.precision_plugin.precision)
        if precision.startswith(("16", "bf16")):
            raise self.classes.MisconfigurationException(
                f"precision={precision!r} is not for the strategy dp, as it never was: use strategy=\"ddp\"")
        environment = self.cluster_environment
        launched = environment.world_size() if environment.creates_processes_externally else 1
        if launched > 1 or self.num_nodes > 1:
            how_many = f"a launcher has started {launched}" if launched > 1 else f"num_nodes={self.num_nodes} asks for more"
            raise self.classes.MisconfigurationException(
                f"the strategy dp is one process, and {how_many}, each of which would train a model of its own: use "
                "strategy=\"ddp2\", with one process on each machine, or \"ddp\"")
        super().setup_environment()

    @property
    def root_device(self) -> torch.device:
        return self.parallel_devices[0]

    @property
    def distributed_sampler_kwargs(self) -> None:
        return None

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        return tensor.float().mean() if isinstance(tensor, torch.Tensor) and tensor.dim() > 0 else tensor

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        return tensor

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        return decision

    def barrier(self, name: str | None = None) -> None:
        """There is one process."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return obj


class DDP2Strategy(_SplitsBatches, TuttiStrategy):
    """Lightning's DDP2Strategy (``ddp2``): ``dp`` on each machine, and gradients averaged between machines.

    One process per machine, which Lightning, torchrun or mpirun starts. The batch size is that of a machine, and
    ``*_step_end`` sees the outputs for the machine's whole batch. ``algorithm`` and the other arguments are those of
    :class:`TuttiStrategy`.
    """

    name = "ddp2"

    def _configure_launcher(self) -> None:
        # Here and not when training begins, before which Lightning compares its Trainer's devices with the processes.
        environment = started_by(self.cluster_environment)
        if environment is not None and (environment.local_size(), environment.world_size()) != (1, self.num_nodes):
            raise self.classes.MisconfigurationException(
                f"rank {environment.global_rank()}: the strategy ddp2 has one process, which uses all devices, on each of "
                f"num_nodes={self.num_nodes} machines, and {environment.launcher()} has started {environment.world_size()} "
                f"processes, {environment.local_size()} of them on this machine: start one on each machine, by `python3 "
                "train.py` where there is one, and by `torchrun --nnodes=N --nproc-per-node=1 … train.py` with "
                "Trainer(num_nodes=N) where there are N")
        super()._configure_launcher()

    @property
    def root_device(self) -> torch.device:
        return self.parallel_devices[0]

    @property
    def num_processes(self) -> int:
        return 1

    @property
    def local_rank(self) -> int:
        return 0

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}
