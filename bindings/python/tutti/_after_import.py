"""Runs functions once a module has been imported, so that nothing imports a package that the program does not use."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_waiting: dict[str, list[Callable[[ModuleType], None]]] = {}


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and then calls the functions that wait for the module."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module shows its own loader, as inspect and pkgutil expect.
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # A function goes when it has returned: where it raises, the program may import the module again.
        waiting = _waiting.get(module.__name__, [])
        while waiting:
            waiting[0](module)
            del waiting[0]
        _waiting.pop(module.__name__, None)


class _Finder(importlib.abc.MetaPathFinder):

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


def after_import(name: str, function: Callable[[ModuleType], None]) -> None:
    """Calls ``function`` with the module ``name`` once the module has been imported; at once if it has been already."""
    if name in sys.modules:
        return function(sys.modules[name])
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(function)
