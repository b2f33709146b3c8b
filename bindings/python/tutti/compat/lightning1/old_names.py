"""What Lightning 1 had under another name: a table of old module, old name, and where it is today.

A place that begins with a dot lies in the package that the script imports (lightning.pytorch or pytorch_lightning), one
that begins with "fabric." in the fabric that belongs to it; every other place is a full path. `*` stands for all names
of a module. A row without a place is refused, and its text says what to do.
"""

from typing import NamedTuple


class OldName(NamedTuple):
    """A row of the table: ``module.name`` of Lightning 1 is at ``place`` today.

    ``today`` is what to write if that is not simply the place.
    """

    module: str
    name: str
    place: str | None
    today: str | None


def _moved(module: str, names: str, place: str, today: str | None = None) -> list[OldName]:
    """Rows for ``names`` that are at ``place`` today: a module with a dot at the end, or one name in place of each."""
    return [OldName(module, name, place + name if place.endswith(".") else place, today) for name in names.split()]


def _refused(module: str, names: str, today: str) -> list[OldName]:
    return [OldName(module, name, None, today) for name in names.split()]


_OWN = "tutti.compat.lightning1.stand_ins."

# The classes that were "plugins" up to Lightning 1.5, with the module below plugins.training_type that each was in.
_PLUGINS = (
    ("ddp", "DDPPlugin", ".strategies.DDPStrategy"),
    ("ddp2", "DDP2Plugin", ".strategies.DDP2Strategy"),
    ("dp", "DataParallelPlugin", ".strategies.DataParallelStrategy"),
    ("ddp_spawn", "DDPSpawnPlugin", ".strategies.DDPSpawnStrategy"),
    ("sharded", "DDPShardedPlugin", ".strategies.DDPShardedStrategy"),
    ("sharded_spawn", "DDPSpawnShardedPlugin", ".strategies.DDPSpawnShardedStrategy"),
    ("horovod", "HorovodPlugin", ".strategies.HorovodStrategy"),
    ("deepspeed", "DeepSpeedPlugin", ".strategies.DeepSpeedStrategy"),
    ("fully_sharded", "DDPFullyShardedPlugin", ".strategies.FSDPStrategy"),
    ("single_device", "SingleDevicePlugin", ".strategies.SingleDeviceStrategy"),
    ("single_tpu", "SingleTPUPlugin", ".strategies.SingleDeviceXLAStrategy"),
    ("tpu_spawn", "TPUSpawnPlugin", ".strategies.XLAStrategy"),
    ("parallel", "ParallelPlugin", ".strategies.ParallelStrategy"),
    ("training_type_plugin", "TrainingTypePlugin", ".strategies.Strategy"),
)
# Modules below strategies that are gone, whose classes tutti.lightning brings back, or that have another name today.
_STRATEGIES = (
    ("dp", "DataParallelStrategy", ".strategies.DataParallelStrategy"),
    ("ddp2", "DDP2Strategy", ".strategies.DDP2Strategy"),
    ("ddp_spawn", "DDPSpawnStrategy", ".strategies.DDPSpawnStrategy"),
    ("sharded", "DDPShardedStrategy", ".strategies.DDPShardedStrategy"),
    ("sharded_spawn", "DDPSpawnShardedStrategy", ".strategies.DDPSpawnShardedStrategy"),
    ("horovod", "HorovodStrategy", ".strategies.HorovodStrategy"),
    ("bagua", "BaguaStrategy", ".strategies.BaguaStrategy"),
    ("fully_sharded", "DDPFullyShardedStrategy", ".strategies.FSDPStrategy"),
    ("fully_sharded_native", "DDPFullyShardedNativeStrategy", ".strategies.FSDPStrategy"),
    ("tpu_spawn", "TPUSpawnStrategy", ".strategies.XLAStrategy"),
)
_RANK_ZERO = "rank_zero_only rank_zero_warn rank_zero_info rank_zero_debug rank_zero_deprecation"
_NO_IPU = "no IPU is supported by Lightning today: leave it out"

OLD_NAMES: tuple[OldName, ...] = (
    # Strategies.
    *(row for module, name, place in _PLUGINS
      for old in ("plugins", "plugins.training_type", f"plugins.training_type.{module}")
      for row in _moved(old, name, place)),
    *(row for module, name, place in _STRATEGIES for row in _moved(f"strategies.{module}", name, place)),
    *_moved("strategies", "DDPFullyShardedStrategy DDPFullyShardedNativeStrategy", ".strategies.FSDPStrategy"),
    *_moved("strategies", "TPUSpawnStrategy", ".strategies.XLAStrategy"),
    *_refused("strategies", "IPUStrategy", _NO_IPU),
    *_refused("strategies", "HivemindStrategy CollaborativeStrategy", "the package lightning-Hivemind has it"),
    # Other plugins and accelerators.
    *_moved("plugins", "NativeMixedPrecisionPlugin", ".plugins.MixedPrecision"),
    *_refused("plugins", "ApexMixedPrecisionPlugin", 'Trainer(precision="16-mixed") in place of apex'),
    *_refused("plugins", "IPUPlugin IPUPrecisionPlugin", _NO_IPU),
    *_refused("plugins", "ShardedNativeMixedPrecisionPlugin", 'Trainer(precision="16-mixed")'),
    *_moved("accelerators", "GPUAccelerator", ".accelerators.CUDAAccelerator"),
    *_refused("accelerators", "IPUAccelerator", _NO_IPU),
    *_refused("accelerators", "HPUAccelerator", "the package lightning-habana has it"),
    # LightningModule and its wrappers.
    *_moved("core.lightning", "LightningModule", ".LightningModule"),
    *_moved("core.memory", "ModelSummary", ".utilities.model_summary.ModelSummary"),
    *_moved("overrides.data_parallel", "LightningDistributedDataParallel", "torch.nn.parallel.DistributedDataParallel"),
    *_moved("overrides.data_parallel", "LightningDataParallel", "torch.nn.parallel.DataParallel"),
    *_moved("overrides.distributed", "LightningDistributedModule", _OWN + "lightning_distributed_module",
            "the module itself: Lightning wraps nothing between it and DistributedDataParallel"),
    *_refused("core.decorators", "auto_move_data", "trainer.predict, or move the batch to self.device"),
    *_refused("lite", "LightningLite", "Fabric of the package lightning.fabric"),
    *_refused("", "EvalResult TrainResult", "self.log(...) in the step"),
    # Metrics, profilers and the command line.
    *_moved("metrics", "*", "torchmetrics.*"),
    *_moved("metrics.functional", "*", "torchmetrics.functional.*"),
    *_moved("profiler", "BaseProfiler AbstractProfiler", ".profilers.Profiler"),
    *_moved("profiler", "*", ".profilers.*"),
    *_moved("utilities.cli", "*", ".cli.*"),
    # Callbacks.
    *_moved("callbacks", "GPUStatsMonitor XLAStatsMonitor", ".callbacks.DeviceStatsMonitor"),
    *_moved("callbacks.gpu_stats_monitor", "GPUStatsMonitor", ".callbacks.DeviceStatsMonitor"),
    *_moved("callbacks.xla_stats_monitor", "XLAStatsMonitor", ".callbacks.DeviceStatsMonitor"),
    *_moved("callbacks", "LearningRateLogger", ".callbacks.LearningRateMonitor"),
    *_moved("callbacks.base", "Callback", ".callbacks.Callback"),
    *_moved("callbacks", "ProgressBar", ".callbacks.TQDMProgressBar"),
    *_moved("callbacks.progress", "ProgressBar", ".callbacks.TQDMProgressBar"),
    *_moved("callbacks", "ProgressBarBase", ".callbacks.progress.progress_bar.ProgressBar"),
    *_moved("callbacks.progress", "ProgressBarBase", ".callbacks.progress.progress_bar.ProgressBar"),
    *_moved("callbacks.progress.base", "ProgressBarBase", ".callbacks.progress.progress_bar.ProgressBar"),
    *_refused("callbacks", "QuantizationAwareTraining", "torch.ao.quantization"),
    # Loggers.
    *_moved("loggers", "LoggerCollection", _OWN + "LoggerCollection", "a list: Trainer(logger=[first, second])"),
    *_moved("loggers.base", "LoggerCollection", _OWN + "LoggerCollection", "a list: Trainer(logger=[first, second])"),
    *_moved("loggers", "LightningLoggerBase", ".loggers.Logger"),
    *_moved("loggers.base", "LightningLoggerBase", ".loggers.Logger"),
    *_moved("loggers.base", "rank_zero_experiment DummyLogger DummyExperiment", ".loggers.logger."),
    *_refused("loggers", "TestTubeLogger", "loggers.TensorBoardLogger or loggers.CSVLogger"),
    *_refused("loggers.test_tube", "TestTubeLogger", "loggers.TensorBoardLogger or loggers.CSVLogger"),
    # Utilities.
    *_moved("utilities.distributed", _RANK_ZERO, ".utilities.rank_zero."),
    *_moved("utilities.distributed", "gather_all_tensors", "fabric.utilities.distributed._gather_all_tensors",
            "self.all_gather(tensor)"),
    *_moved("utilities.distributed", "sync_ddp sync_ddp_if_available",
            "fabric.utilities.distributed._sync_ddp_if_available", "trainer.strategy.reduce(tensor)"),
    *_moved("utilities.distributed", "all_gather_ddp_if_available",
            "fabric.utilities.distributed._all_gather_ddp_if_available", "self.all_gather(tensor)"),
    *_moved("utilities.distributed", "distributed_available", "torch.distributed.is_initialized"),
    *_moved("utilities.enums", "DistributedType DeviceType AMPType", _OWN, "a str, such as \"ddp\" or \"gpu\""),
    *_moved("utilities", "DistributedType DeviceType AMPType", _OWN, "a str, such as \"ddp\" or \"gpu\""),
    *_moved("utilities.seed", "seed_everything", ".seed_everything"),
    *_moved("utilities.seed", "reset_seed pl_worker_init_function", "fabric.utilities.seed."),
    *_moved("utilities.apply_func", "apply_to_collection", "lightning_utilities.core.apply_func."),
    *_moved("utilities.apply_func", "move_data_to_device", ".utilities.move_data_to_device"),
    *_moved("utilities", "apply_to_collection", "lightning_utilities.core.apply_func."),
    *_moved("utilities.cloud_io", "load", "fabric.utilities.cloud_io._load", "torch.load"),
    *_moved("utilities.cloud_io", "atomic_save", "fabric.utilities.cloud_io._atomic_save", "torch.save"),
    *_moved("utilities.cloud_io", "get_filesystem", "fabric.utilities.cloud_io."),
    *_moved("utilities.types", "EPOCH_OUTPUT", _OWN + "EPOCH_OUTPUT", "list[STEP_OUTPUT]"),
    *_moved("trainer.supporters", "CombinedLoader", ".utilities.CombinedLoader"),
)
