"""Tutti's strategies for Lightning: ``Trainer(strategy="bagua")`` and the like.

    import tutti.lightning
    trainer = Trainer(strategy="tutti:bytegrad", accelerator="cpu", devices=4)

The import registers, with ``lightning`` and with ``pytorch_lightning`` (whichever the program imports, before or
after), these strategies for the Trainer:

- ``tutti`` and ``bagua``; ``tutti:NAME`` takes every strategy name of Tutti, with options after commas;
- ``horovod``, ``dp``, ``ddp2`` and ``ddp_sharded``;
- each of them, ``dp``, ``ddp2`` and ``horovod`` excepted, with ``_spawn``, ``_fork`` and ``_notebook``.

Fabric gets ``tutti``, ``bagua`` and ``tutti:NAME``.

The classes behind the names are attributes of this module, and of ``lightning.pytorch.strategies``.
:func:`use_for_ddp` lets ``ddp`` itself run on the backend ``tutti``.
"""

import importlib
import importlib.util
import os
import sys
from typing import Any

from tutti.lightning import _register
from tutti.lightning._register import PACKAGES

__all__ = [
    "BaguaStrategy", "DDP2Strategy", "DDPShardedStrategy", "DataParallelStrategy", "HorovodStrategy", "QAdamOptimizer",
    "TuttiStrategy", "use_for_ddp"
]


def use_for_ddp() -> None:
    """Lets ``strategy="ddp"``, ``"ddp_spawn"`` and the other names of DDP run on the backend ``tutti``.

    The environment variable ``TUTTI_LIGHTNING_DDP=1`` does the same when this module is imported. A strategy object
    (``DDPStrategy()``) keeps the backend that it names.
    """
    _register.use_for_ddp()


def _package() -> str:
    """The Lightning that the program uses: the one that it has imported, or else the one that is installed."""
    imported = [package for package in PACKAGES if package in sys.modules]
    for package in [*imported, *PACKAGES]:
        if package in sys.modules or importlib.util.find_spec(package.partition(".")[0]) is not None:
            return package
    raise ImportError("tutti.lightning needs Lightning: pip install lightning")


def __getattr__(name: str) -> Any:
    if name == "QAdamOptimizer":
        return importlib.import_module("tutti.lightning.qadam").QAdamOptimizer
    if name not in __all__:
        raise AttributeError(f"module 'tutti.lightning' has no attribute {name!r}")
    return getattr(_register.classes_for(_package()), name)


_register.register()
if os.environ.get("TUTTI_LIGHTNING_DDP") == "1":
    use_for_ddp()
