"""Makes the strategies for one Lightning: Tutti's part of each, on top of a class of that Lightning."""

import importlib
import sys
from typing import Any

from tutti.lightning import _data_parallel, _environment, _fabric, _failures, _horovod, _names, _sharded, _strategy

# The classes, with Lightning's class that each is derived from.
_TRAINER = {
    _strategy.TuttiStrategy: "DDPStrategy",
    _strategy.BaguaStrategy: "DDPStrategy",
    _horovod.HorovodStrategy: "DDPStrategy",
    _sharded.DDPShardedStrategy: "DDPStrategy",
    _data_parallel.DataParallelStrategy: "ParallelStrategy",
    _data_parallel.DDP2Strategy: "DDPStrategy",
}


def define(module: dict[str, Any], package: str, fabric: str) -> None:
    """Adds the strategies for the Lightning ``package`` to ``module``, whose Fabric is ``fabric``.

    The classes are attributes of a module, so that they can be pickled.
    """
    name = module["__name__"]
    module["PACKAGE"] = package

    def add(part: type, base: type) -> type:
        names = {"__doc__": part.__doc__, "__module__": name, "classes": sys.modules[name]}
        module[part.__name__] = made = type(part.__name__, (part, base), names)
        return made

    exceptions = importlib.import_module(f"{fabric}.utilities.exceptions")
    module["MisconfigurationException"] = exceptions.MisconfigurationException
    environments = importlib.import_module(f"{fabric}.plugins.environments")
    environment = _environment.LauncherEnvironment
    module["TuttiEnvironment"] = type("TuttiEnvironment", (environment, environments.ClusterEnvironment), {
        "__doc__": environment.__doc__, "__module__": name})
    callback = importlib.import_module(f"{package}.callbacks").Callback
    module["TellsOthersFirst"] = type("TellsOthersFirst", (_failures.TellsOthersFirst, callback), {"__module__": name})
    layer_sync = importlib.import_module(f"{package}.plugins.layer_sync").LayerSync
    module["TuttiSyncBatchNorm"] = type("TuttiSyncBatchNorm", (_strategy.SyncsBatchNorm, layer_sync), {"__module__": name})
    of_trainer = importlib.import_module(f"{package}.strategies")
    made = {part: add(part, getattr(of_trainer, base)) for part, base in _TRAINER.items()}
    of_fabric = add(_fabric.TuttiFabricStrategy, importlib.import_module(f"{fabric}.strategies").DDPStrategy)

    tutti, bagua = made[_strategy.TuttiStrategy], made[_strategy.BaguaStrategy]
    started = [("tutti", tutti), ("bagua", bagua), ("ddp_sharded", made[_sharded.DDPShardedStrategy])]
    module["NAMES"] = [(name + suffix, strategy, {"start_method": method})
                       for name, strategy in started for suffix, method in _names.START_METHODS.items()] + [
        ("horovod", made[_horovod.HorovodStrategy], {}),
        *((f"ddp_sharded{suffix}_find_unused_parameters_false", made[_sharded.DDPShardedStrategy],
           {"start_method": _names.START_METHODS[suffix], "find_unused_parameters": False}) for suffix in ("", "_spawn")),
        ("dp", made[_data_parallel.DataParallelStrategy], {}),
        ("ddp2", made[_data_parallel.DDP2Strategy], {})]
    module["FABRIC_NAMES"] = [(name + suffix, of_fabric, {"start_method": method})
                              for name in ("tutti", "bagua") for suffix, method in _names.START_METHODS.items()]

    def strategy_for(strategy: Any, named: type, others: Any) -> Any:
        """The strategy that a user gave, unless it is a name that no registry has, or was made for another Lightning."""
        if isinstance(strategy, str):
            found = _names.split(strategy)
            if found is None:
                _names.check_family(strategy)
                return strategy
            return named(found[1], start_method=found[0])
        if isinstance(strategy, others) and not isinstance(strategy, tuple(module.get(part.__name__) for part in others)):
            if type(strategy).__name__ not in module:
                raise TypeError(f"{type(strategy).__qualname__} is derived from a strategy for another Lightning than "
                                f"{package}: import both from one of lightning and pytorch_lightning")
            arguments, keywords = strategy.given
            return module[type(strategy).__name__](*arguments, **keywords)
        return strategy

    module["strategy_for_trainer"] = lambda strategy: strategy_for(
        _horovod.named_by_launcher(strategy), tutti, tuple(_TRAINER))
    module["devices_for"] = _horovod.devices_for
    module["strategy_for_fabric"] = lambda strategy: strategy_for(strategy, of_fabric, (_fabric.TuttiFabricStrategy,))
