"""What Lightning 1 had and Lightning 2 has under no name."""

import enum
from typing import Any

import torch

EPOCH_OUTPUT = list[Any]  # of *_epoch_end: what each step returned
LoggerCollection = list  # Trainer(logger=…) takes any list of loggers


def lightning_distributed_module(module: torch.nn.Module) -> torch.nn.Module:
    """``module`` itself: DistributedDataParallel takes a LightningModule without a wrapper."""
    return module


class _Word(str, enum.Enum):
    """A word that equals the str in it, in whatever case, as the enumerations of Lightning 1."""

    def __eq__(self, other: object) -> bool:
        return self.value.lower() == (other.value if isinstance(other, enum.Enum) else str(other)).lower()

    def __hash__(self) -> int:
        return hash(self.value.lower())

    def __str__(self) -> str:
        return self.value


class DistributedType(_Word):
    """The strategies' words."""

    DP = "dp"
    DDP = "ddp"
    DDP2 = "ddp2"
    DDP_CPU = "ddp_cpu"
    DDP_SPAWN = "ddp_spawn"
    TPU_SPAWN = "tpu_spawn"
    DEEPSPEED = "deepspeed"
    HOROVOD = "horovod"
    DDP_SHARDED = "ddp_sharded"
    DDP_SHARDED_SPAWN = "ddp_sharded_spawn"
    DDP_FULLY_SHARDED = "ddp_fully_sharded"


class DeviceType(_Word):
    """The devices' words."""

    CPU = "CPU"
    GPU = "GPU"
    IPU = "IPU"
    TPU = "TPU"


class AMPType(_Word):
    """The words of mixed precision's backends."""

    APEX = "apex"
    NATIVE = "native"
