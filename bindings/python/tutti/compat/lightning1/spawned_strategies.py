"""DDPSpawnStrategy and DDPSpawnShardedStrategy, which are a start_method of other strategies today."""

from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once

# {name in Lightning 1: the strategy whose processes are spawned}
SPAWNED = {"DDPSpawnStrategy": "DDPStrategy", "DDPSpawnShardedStrategy": "DDPShardedStrategy"}


def _spawned(base: type, name: str, package: ModuleType) -> type:

    def __init__(self: Any, *args: Any, start_method: str = "spawn", **kwargs: Any) -> None:
        say_once(f'{name}(…) is of Lightning 1: write {base.__name__}(start_method="spawn")')
        base.__init__(self, *args, start_method=start_method, **kwargs)

    document = f"{base.__name__} whose processes are spawned."
    # __module__ is where a spawned process finds the class.
    return type(name, (base,), {"__init__": __init__, "__doc__": document, "__module__": package.strategies.__name__})


def patch(package: ModuleType) -> None:
    """Gives ``package.strategies`` the classes whose base it has; DDPShardedStrategy comes from tutti.lightning."""
    for name, base in SPAWNED.items():
        if hasattr(package.strategies, base):
            setattr(package.strategies, name, _spawned(getattr(package.strategies, base), name, package))
