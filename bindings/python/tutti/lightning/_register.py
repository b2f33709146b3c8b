"""What Tutti adds to a Lightning once the program has imported it: strategies, their names, and their old names."""

import functools
import importlib
import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

from tutti._after_import import after_import

# The packages with a Trainer, and the package with the Fabric of each.
PACKAGES = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}
_CLASSES = {
    "lightning.pytorch": "tutti.lightning.of_lightning",
    "pytorch_lightning": "tutti.lightning.of_pytorch_lightning",
}
_DDP_NAMES = ("ddp", "ddp_spawn", "ddp_fork", "ddp_notebook")
_ddp_is_ours = False


def require(package: ModuleType, oldest: str, needed_by: str) -> None:
    """ImportError when the Lightning ``package`` is older than ``oldest``. A candidate counts as its release."""

    def numbers(version: str) -> list[int]:
        return [int(part) for part in re.match(r"[\d.]*\d", version).group().split(".")]

    if numbers(package.__version__) < numbers(oldest):
        raise ImportError(f"{needed_by}: {package.__name__} is {package.__version__}, and {oldest} or newer is needed: "
                          "pip install -U lightning")


def classes_for(package: str) -> ModuleType:
    """The module with the strategies for a Lightning."""
    # Lightning comes first: once it has been imported it gets the strategies, whose module would be half made then.
    importlib.import_module(package)
    return importlib.import_module(_CLASSES[package])


def register() -> None:
    """Registers everything with each Lightning, once the program has imported it."""
    for package, fabric in PACKAGES.items():
        after_import(package, functools.partial(_add_to, package, fabric))
        # A program that uses Fabric alone may never import the package with the Trainer, whose strategies these are.
        after_import(fabric, functools.partial(_import, package))


def _import(package: str, _: ModuleType) -> None:
    if importlib.util.find_spec(package.partition(".")[0]) is not None:
        importlib.import_module(package)


def use_for_ddp() -> None:
    global _ddp_is_ours
    _ddp_is_ours = True
    for package, fabric in PACKAGES.items():
        if package in sys.modules:
            _replace_ddp(package, fabric)


def _registry(package: str) -> Any:
    return importlib.import_module(f"{package}.strategies").StrategyRegistry


def _fabric_registry(fabric: str) -> Any:
    return importlib.import_module(f"{fabric}.strategies").STRATEGY_REGISTRY


class _Backend(str):
    """The name of a backend that registers the backend with torch where it is unpickled, as in a spawned process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _registered, (str(self),)


def _registered(name: str) -> _Backend:
    import tutti.torch  # noqa: F401

    return _Backend(name)


def _replace_ddp(package: str, fabric: str) -> None:
    """Names the backend ``tutti`` to every entry of DDP."""
    for registry in (_registry(package), _fabric_registry(fabric)):
        for name, entry in registry.items():
            if name in _DDP_NAMES or name.startswith(tuple(f"{ddp}_find_unused" for ddp in _DDP_NAMES)):
                entry["init_params"]["process_group_backend"] = _Backend("tutti")


def _add_to(package: str, fabric: str, imported: ModuleType) -> None:
    require(imported, "2.6", "tutti.lightning")
    classes = classes_for(package)
    trainer, fabric_names = _registry(package), _fabric_registry(fabric)
    for name, strategy, options in classes.NAMES:
        trainer.register(name, strategy, description=strategy.__doc__.partition("\n")[0], override=True, **options)
    for name, strategy, options in classes.FABRIC_NAMES:
        fabric_names.register(name, strategy, description=strategy.__doc__.partition("\n")[0], override=True, **options)
    strategies = importlib.import_module(f"{package}.strategies")
    for strategy in {strategy for _, strategy, _ in classes.NAMES}:
        setattr(strategies, strategy.__name__, strategy)
    connectors = importlib.import_module(f"{package}.trainer.connectors.accelerator_connector")
    _take_names(connectors._AcceleratorConnector, classes.strategy_for_trainer, classes.devices_for)
    of_fabric = importlib.import_module(f"{fabric}.connector")._Connector
    _take_names(of_fabric, classes.strategy_for_fabric, classes.devices_for)
    for connector in (connectors._AcceleratorConnector, of_fabric):
        _know_launchers(connector, classes.TuttiEnvironment)
    if _ddp_is_ours:
        _replace_ddp(package, fabric)


def _take_names(connector: type, strategy_for: Any, devices_for: Any) -> None:
    """Lets the connector of a Trainer or Fabric take names such as ``"tutti:bytegrad"``, which no registry lists."""
    connect = connector.__init__

    @functools.wraps(connect)
    def takes_names(self: Any, *arguments: Any, **keywords: Any) -> None:
        if "strategy" in keywords:
            keywords["strategy"] = strategy_for(keywords["strategy"])
            if "devices" in keywords:  # Lightning would take all GPUs of the machine
                keywords["devices"] = devices_for(keywords["strategy"], keywords["devices"])
        connect(self, *arguments, **keywords)

    connector.__init__ = takes_names


def _know_launchers(connector: type, environment: type) -> None:
    """Lets every strategy take its ranks from mpirun, under which Lightning alone would start further processes."""
    choose = connector._choose_and_init_cluster_environment

    @functools.wraps(choose)
    def choose_environment(self: Any) -> Any:
        chosen = choose(self)
        if type(chosen).__name__ == "LightningEnvironment" and self._cluster_environment_flag is None:
            return environment() if environment.detect() else chosen
        return chosen

    connector._choose_and_init_cluster_environment = choose_environment
