"""The names `bagua` and `horovod`, which lead to `tutti.compat.bagua` and `tutti.compat.horovod`."""

import importlib.metadata
import importlib.util
import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from tutti.compat import missing_names

NAMES = ("bagua", "horovod")
OWNER = "tutti-old-names"  # the distribution of bindings/python/old_names, which owns the names without the switch
_PREFIX = "tutti.compat."


def make_importable() -> None:
    """Lets ``import bagua`` and ``import horovod`` succeed. ImportError names a real installation of either."""
    for name in NAMES:
        _refuse_real_installation(name)
    sys.meta_path.insert(0, _Finder())


def are_importable() -> bool:
    """Whether ``make_importable`` has been called in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def take_over(name: str) -> None:
    """Activates ``tutti.compat``, and makes the module ``name``, which is being imported, that of ``tutti.compat``."""
    import tutti.compat

    tutti.compat.activate()
    _refuse_real_installation(name)
    sys.modules[name] = importlib.import_module(_PREFIX + name)


def _refuse_real_installation(name: str) -> None:
    spec = PathFinder.find_spec(name)
    if spec is None or spec.origin is None:  # a folder of that name without __init__.py is no package of anybody
        return
    owners = set(importlib.metadata.packages_distributions().get(name, []))
    if owners == {OWNER}:
        return
    real = sorted(owners - {OWNER})
    if real:
        versions = " and ".join(f"{owner} {importlib.metadata.version(owner)}" for owner in real)
        text = f"{versions} is installed ({spec.origin}), and Tutti would hide it: run `pip uninstall {' '.join(real)}`"
    else:
        text = (f"there is another module {name} ({spec.origin}), which Tutti would hide: give the file or folder another "
                "name")
    raise ImportError(f"{text}, or do not use tutti.compat", name=name, path=spec.origin)


class _Finder(MetaPathFinder):
    """Finds the old names, and says of those that there are no more what to use today."""

    def find_spec(self, name: str, path: Any = None, target: types.ModuleType | None = None) -> ModuleSpec | None:
        if name.removeprefix(_PREFIX).partition(".")[0] not in NAMES:
            return None
        if name.startswith(_PREFIX):
            # `from horovod.torch import elastic` looks for a module of this name; any other is found as usual.
            missing_names.refuse_import(name.removeprefix(_PREFIX))
            return None
        if name in NAMES:
            _refuse_real_installation(name)
        missing_names.refuse_import(name)
        found = importlib.util.find_spec(_PREFIX + name)
        if found is None:
            raise ModuleNotFoundError(missing_names.text_for(name), name=name)
        return importlib.util.spec_from_loader(
            name, _Alias(found.name), origin=found.origin, is_package=found.submodule_search_locations is not None)


class _Alias(Loader):
    """Gives an old name the very module of `tutti.compat`, so that there is one state and one of each class."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._target)
        self._own = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._own  # the import system has just put the spec of the alias there

    def get_code(self, name: str) -> types.CodeType:
        """The code that ``python -m name`` runs."""
        return importlib.util.find_spec(self._target).loader.get_code(self._target)
