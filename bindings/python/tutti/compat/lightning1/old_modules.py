"""Lets the import paths of old_names.OLD_NAMES lead to what they name."""

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once_at_import
from tutti.compat.lightning1.old_names import OLD_NAMES, OldName
from tutti.lightning import PACKAGES

# {module: {name: row}}, with modules as paths within a package; "" is the package itself.
_BY_MODULE: dict[str, dict[str, OldName]] = {}
for _row in OLD_NAMES:
    _BY_MODULE.setdefault(_row.module, {})[_row.name] = _row


def path_of(package: str, place: str) -> str:
    """The full path of a ``place`` of the table."""
    if place.startswith("."):
        return package + place
    return PACKAGES[package] + place.removeprefix("fabric") if place.startswith("fabric.") else place


def _resolve(package: str, row: OldName, name: str) -> Any:
    """What ``row`` names, said in one line; ``name`` is the row's own, or one of those that its `*` stands for."""
    old = ".".join(filter(None, (package, row.module, name)))
    if row.place is None:
        raise ImportError(f"{old} is of Lightning 1, and Lightning 2 has nothing like it. Today: {row.today}")
    path = path_of(package, row.place.replace("*", name))
    module, _, attribute = path.rpartition(".")
    found = getattr(importlib.import_module(module), attribute, None)
    if found is None and row.name == "*":
        raise AttributeError(f"{old} would be {path} today, which does not exist")
    if found is None:
        raise ImportError(f"{old} is {path} today, one of the strategies that Lightning gets from tutti.lightning, and "
                          "tutti.lightning has not registered it")
    say_once_at_import(f"{old} is of Lightning 1: write {row.today or path}")
    return found


def _attribute(package: str, rows: dict[str, OldName], beside: Callable[[str], Any] | None, module: str,
               name: str) -> Any:
    """The ``__getattr__`` of a module: old names of the table, old modules below it, then the module's own answer."""
    inner = f"{module.removeprefix(package).removeprefix('.')}.{name}".removeprefix(".")
    row = rows.get(name) or (rows.get("*") if not name.startswith("__") else None)
    if row is not None:
        return _resolve(package, row, name)
    if _is_old_module(inner):
        return importlib.import_module(f"{package}.{inner}")
    if beside is not None:
        return beside(name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _is_old_module(inner: str) -> bool:
    return any(module == inner or module.startswith(inner + ".") for module in _BY_MODULE)


class _OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that the table names and that no other finder knows."""

    def find_spec(self, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        package = next((p for p in PACKAGES if name.startswith(p + ".")), None)
        if package is None or not _is_old_module(name.removeprefix(package + ".")):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        package = next(p for p in PACKAGES if module.__name__.startswith(p + "."))
        _extend(package, module)


def _extend(package: str, module: ModuleType) -> None:
    """Gives ``module`` the old names that the table has for it."""
    inner = module.__name__.removeprefix(package).removeprefix(".")
    rows = _BY_MODULE.get(inner, {})
    for name in rows.keys() & vars(module).keys():
        delattr(module, name)  # means something else today (callbacks.ProgressBar): __getattr__ gives the old meaning
    beside = getattr(module, "__getattr__", None)
    module.__getattr__ = functools.partial(_attribute, package, rows, beside, module.__name__)


def patch(package: ModuleType) -> None:
    """Lets the old import paths of ``package`` work."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
    for inner in {*_BY_MODULE, *(module.rpartition(".")[0] for module in _BY_MODULE)}:
        name = f"{package.__name__}.{inner}".removesuffix(".")
        if importlib.util.find_spec(name) and not isinstance(importlib.import_module(name).__loader__, _OldModules):
            _extend(package.__name__, sys.modules[name])
