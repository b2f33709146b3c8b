"""Import paths of Lightning 1 lead to what they name today."""

import importlib
import pickle
import subprocess

import pytest
import torchmetrics

from launchers import PYTHON, environment
from lightning1 import in_both, run_old
from tutti.compat.lightning1 import old_modules, spawned_strategies
from tutti.compat.lightning1.old_names import OLD_NAMES

# A name for each row that stands for all names of a module.
OF_ALL = {"metrics": "MeanMetric", "metrics.functional": "accuracy", "profiler": "SimpleProfiler", "utilities.cli":
          "LightningCLI"}
# What tutti.lightning gives to Lightning.
OF_TUTTI = ("DDP2Strategy", "DataParallelStrategy", "DDPShardedStrategy", "HorovodStrategy", "BaguaStrategy")


def every_row(pl):
    """What happens to each row: whether it gives what is at its place, or the error."""
    for name in OF_TUTTI:
        setattr(pl.strategies, name, type(name, (pl.strategies.DDPStrategy,), {}))
    spawned_strategies.patch(pl)
    found = {}
    for row in OLD_NAMES:
        name = OF_ALL[row.module] if row.name == "*" else row.name
        module = importlib.import_module(".".join(filter(None, (pl.__name__, row.module))))
        try:
            value = getattr(module, name)
            place, _, today = old_modules.path_of(pl.__name__, row.place.replace("*", name)).rpartition(".")
            found[row] = value is getattr(importlib.import_module(place), today)
        except ImportError as error:
            found[row] = str(error)
    return found


@in_both
def test_every_row(package):
    found, lines = run_old(every_row, package)
    for row in OLD_NAMES:
        old = ".".join(filter(None, (package, row.module, OF_ALL[row.module] if row.name == "*" else row.name)))
        if row.place is None:
            assert found[row] == f"{old} is of Lightning 1, and Lightning 2 has nothing like it. Today: {row.today}"
        else:
            assert found[row] is True, (old, found[row])
            assert any(line.startswith(f"{old} is of Lightning 1: write ") for line in lines), old


def from_imports(pl):
    """The import lines of old scripts."""
    name = pl.__name__
    there = {}
    exec(f"""
import {name}.metrics
from {name}.core.lightning import LightningModule
from {name}.callbacks import ProgressBar, GPUStatsMonitor
from {name}.callbacks.progress import ProgressBarBase
from {name}.plugins import DDPPlugin
from {name}.plugins.training_type.ddp import DDPPlugin as SamePlugin
from {name}.metrics.functional import accuracy
from {name}.utilities import rank_zero_only
from {name}.utilities.distributed import rank_zero_only as same_rank_zero_only
from {name}.utilities.enums import DistributedType
from {name}.utilities.seed import seed_everything
from {name}.utilities.types import EPOCH_OUTPUT, STEP_OUTPUT
from {name}.loggers import LoggerCollection, CSVLogger
""", there)
    assert there["LightningModule"] is pl.LightningModule
    assert there["DDPPlugin"] is there["SamePlugin"] is pl.strategies.DDPStrategy
    assert issubclass(there["ProgressBar"], there["ProgressBarBase"])
    assert there["ProgressBar"](refresh_rate=3).refresh_rate == 3
    assert there["accuracy"] is torchmetrics.functional.accuracy and pl.metrics.MeanMetric is torchmetrics.MeanMetric
    assert there["rank_zero_only"] is there["same_rank_zero_only"] and there["seed_everything"] is pl.seed_everything
    assert there["DistributedType"].DDP == "DDP" == there["DistributedType"].DDP
    trainer = pl.Trainer(logger=there["LoggerCollection"]([there["CSVLogger"]("."), there["CSVLogger"]("other")]),
                         accelerator=there["DistributedType"].DDP, num_processes=2)
    assert len(trainer.loggers) == 2 and type(trainer.strategy) is pl.strategies.DDPStrategy
    with pytest.raises(ImportError, match="cannot import name 'NoSuchPlugin'"):
        exec(f"from {name}.plugins import NoSuchPlugin")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module(f"{name}.no_such_module")
    with pytest.raises(ImportError, match="DDP2Plugin is .*strategies.DDP2Strategy today, .* from tutti.lightning"):
        vars(pl.strategies).pop("DDP2Strategy", None)
        exec(f"from {name}.plugins import DDP2Plugin")
    spawns = importlib.import_module(f"{name}.plugins").DDPSpawnPlugin(find_unused_parameters=True)
    assert isinstance(spawns, pl.strategies.DDPStrategy) and spawns._start_method == "spawn"
    assert spawns._ddp_kwargs == {"find_unused_parameters": True}
    assert pickle.loads(pickle.dumps(type(spawns))) is type(spawns)


@in_both
def test_import_lines(package):
    run_old(from_imports, package)


@pytest.mark.parametrize("package, other", [("pytorch_lightning", "lightning.pytorch"),
                                            ("lightning.pytorch", "pytorch_lightning")])
def test_a_package_that_is_imported_later(package, other):
    script = f"""
import sys
from tutti.compat import lightning1
lightning1.activate()
assert not [name for name in sys.modules if "lightning" in name and not name.startswith("tutti.")]
import {package}
import {package}.profiler
from {package}.core.lightning import LightningModule
lightning1.activate()  # changes nothing
assert "{other}" not in sys.modules
trainer = {package}.Trainer(num_processes=1, logger=False)
assert trainer.num_devices == 1
"""
    ended = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=100, env=environment())
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("core.lightning.LightningModule is of Lightning 1") == 1, ended.stderr
    assert "<string>:8: FutureWarning:" in ended.stderr, ended.stderr
