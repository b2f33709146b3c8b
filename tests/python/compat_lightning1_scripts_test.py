"""Whole scripts for Lightning 1, on two processes: what the pages of that time showed, run as it was written."""

import importlib.util
import pathlib

import pytest

import forked_python
from launchers import PYTHON, run, write

PACKAGES = ["lightning.pytorch", "pytorch_lightning"]
if not all(importlib.util.find_spec(package.partition(".")[0]) for package in PACKAGES):
    pytest.skip("one of the two packages of Lightning is not installed", allow_module_level=True)
in_both = pytest.mark.parametrize("package", PACKAGES)
forked_python.import_once("torch._dynamo", *PACKAGES, "tutti.lightning")
EXAMPLES = pathlib.Path(__file__).parents[2] / "docs" / "examples"
START = "from tutti.compat import lightning1\nlightning1.activate()\n"
MODEL = """
import os, torch, torch.distributed as dist
import pytorch_lightning as pl

torch.set_num_threads(1)

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=2)

def say(text):
    os.write(1, f"<{text}>\\n".encode())

QUIET = dict(max_epochs=1, logger=False, checkpoint_callback=False, progress_bar_refresh_rate=0, weights_summary=None)
"""
# The example of the pages on metrics: outputs of every process are gathered at the end of the epoch.
ALL_GATHER = MODEL + """
from pytorch_lightning.core.lightning import LightningModule

class Gathers(Model):
    def test_step(self, batch, batch_idx):
        return batch[:, 0] + 10 * self.global_rank

    def test_dataloader(self):
        return torch.utils.data.DataLoader(torch.arange(8.).view(8, 1), batch_size=2)

    def test_epoch_end(self, outputs):
        mean = torch.mean(self.all_gather(torch.cat(outputs)))
        if self.trainer.is_global_zero:
            self.log("my_reduced_metric", mean, rank_zero_only=True)
        say(f"rank {self.global_rank} mean {mean:.1f} on {dist.get_backend()}")

if __name__ == "__main__":
    trainer = pl.Trainer(gpus=2, accelerator="ACCELERATOR", replace_sampler_ddp=True, **QUIET)
    trainer.test(Gathers())
"""
# The oldest pages: a process group and a DDP class of the model's own.
IN_THE_MODEL = MODEL + """
from pytorch_lightning.overrides.data_parallel import LightningDistributedDataParallel

class MyDDP(LightningDistributedDataParallel):
    pass

class Owner(Model):
    def init_ddp_connection(self, global_rank, world_size, is_slurm_managing_tasks=True):
        assert os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"] and not is_slurm_managing_tasks
        dist.init_process_group("tutti", rank=global_rank, world_size=world_size)
        say(f"rank {global_rank} of {world_size} made the group")

    def configure_ddp(self, model, device_ids):
        assert model is self and device_ids is None
        return MyDDP(model, device_ids=device_ids)

    def training_epoch_end(self, outputs):
        say(f"rank {self.global_rank} trained {len(outputs)} steps by {type(self.trainer.strategy.model).__name__} "
            f"on {dist.get_backend()} weight {self.layer.weight.sum():.4f}")

    def test_step(self, batch, batch_idx):
        say(f"rank {self.global_rank} of {dist.get_world_size()} tests")

    def test_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(2, 3), batch_size=1)

if __name__ == "__main__":
    import tutti.torch
    pl.seed_everything(1)
    trainer = pl.Trainer(gpus=2, distributed_backend="ddp", **QUIET)
    model = Owner()
    trainer.fit(model)
    trainer.test(model)
"""
# Later pages: both in the strategy, which was a plugin.
IN_THE_PLUGIN = MODEL + """
from pytorch_lightning.plugins import DDPPlugin

class MyPlugin(DDPPlugin):
    def init_dist_connection(self, global_rank, world_size):
        say(f"rank {global_rank} of {world_size} made the group")
        super().init_dist_connection(global_rank, world_size)

    def configure_ddp(self):
        say(f"rank {self.global_rank} configures")
        super().configure_ddp()

if __name__ == "__main__":
    trainer = pl.Trainer(gpus=2, accelerator="ddp", plugins=MyPlugin(find_unused_parameters=False), **QUIET)
    trainer.fit(Model())
    say(f"rank {trainer.global_rank} {type(trainer.strategy).__name__}")
"""
# A layer that no backward reaches; torch ends the second step where it does not look for such layers.
UNUSED = MODEL + """
from pytorch_lightning.plugins import DDPPlugin

class Unused(Model):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Linear(3, 1)

class Finds(Model):
    def on_train_end(self):
        say(f"finds {self.trainer.strategy.model.find_unused_parameters}")

if __name__ == "__main__":
    ways = {"accelerator": "ddp"}, {"strategy": "ddp"}, {"plugins": DDPPlugin()}
    for way in ways:
        trainer = pl.Trainer(gpus=2, **way, **QUIET)
        trainer.fit(Unused())
        say(f"{trainer.global_step} steps by {next(iter(way))}")
    pl.Trainer(gpus=2, strategy="ddp_find_unused_parameters_false", **QUIET).fit(Finds())
"""
BY_HOROVOD = IN_THE_MODEL.replace('gpus=2, distributed_backend="ddp"', 'gpus=1, accelerator="horovod"')
NO_GROUP = IN_THE_MODEL.replace('dist.init_process_group("tutti", rank=global_rank, world_size=world_size)', "pass")


def run_on_two_ranks(words, expected=0, **more):
    return forked_python.run_on_ranks(2, words, expected, **more)


def said(tmp_path, text, package, expected=0, start=run_on_two_ranks):
    """What the ranks of the script said, sorted, and what the script wrote on its standard error."""
    script = write(tmp_path, START + text.replace("pytorch_lightning", package))
    ended = start([script], expected, TUTTI_COMPAT_GPUS="cpu", PL_TORCH_DISTRIBUTED_BACKEND="tutti")
    return sorted(line[1:-1] for line in ended.stdout.split("\n") if line.startswith("<")), ended.stderr


@pytest.mark.parametrize("package, accelerator, start", [
    ("pytorch_lightning", "ddp_spawn", forked_python.run), ("lightning.pytorch", "ddp", run_on_two_ranks)
])
def test_outputs_are_gathered_at_the_end_of_an_epoch(tmp_path, package, accelerator, start):
    lines, warned = said(tmp_path, ALL_GATHER.replace("ACCELERATOR", accelerator), package, start=start)
    assert lines == ["rank 0 mean 8.5 on tutti", "rank 1 mean 8.5 on tutti"]
    assert warned.count('write DDPStrategy(process_group_backend="tutti")') == 1, warned
    assert warned.count("Gathers.test_epoch_end(outputs) is of Lightning 1") == 1, warned
    assert warned.count("Trainer(gpus=2) is of Lightning 1") == 1, warned
    assert warned.count("core.lightning.LightningModule is of Lightning 1") == 1, warned


@in_both
def test_a_group_and_a_ddp_class_in_the_model(tmp_path, package):
    lines, warned = said(tmp_path, IN_THE_MODEL, package)
    assert [line for line in lines if "made" in line] == [f"rank {rank} of 2 made the group" for rank in range(2)]
    trained = [line.split(" ", 2)[2] for line in lines if "trained" in line]
    assert len(trained) == 2 and len(set(trained)) == 1, lines
    assert trained[0].startswith("trained 2 steps by MyDDP on tutti"), lines
    for name in "init_ddp_connection", "configure_ddp":
        assert warned.count(f"Owner.{name} is of Lightning 1") == 1, warned
    assert [line for line in lines if "tests" in line] == [f"rank {rank} of 2 tests" for rank in range(2)]


def test_a_group_that_the_strategy_makes_before_the_model(tmp_path):
    lines, _ = said(tmp_path, BY_HOROVOD, "pytorch_lightning")
    others = [line for line in lines if "trained" not in line]
    assert others == [f"rank {rank} of 2 tests" for rank in range(2)], "the model has made no group"
    trained = [line.split(" ", 2)[2] for line in lines if "trained" in line]
    assert len(trained) == 2 and len(set(trained)) == 1, lines
    assert trained[0].startswith("trained 2 steps by MyDDP on tutti"), lines


def test_a_group_that_the_model_does_not_make(tmp_path):
    _, error = said(tmp_path, NO_GROUP, "pytorch_lightning", expected=1)
    assert "rank 0: Owner.init_ddp_connection has made no process group" in error, error


def test_a_group_and_a_ddp_class_in_the_plugin(tmp_path):
    lines, _ = said(tmp_path, IN_THE_PLUGIN, "pytorch_lightning")
    texts = ("MyPlugin", "configures", "of 2 made the group")
    assert lines == [f"rank {rank} {text}" for rank in range(2) for text in texts]


def test_parameters_that_no_backward_reaches(tmp_path):
    lines, warned = said(tmp_path, UNUSED, "pytorch_lightning")
    steps = [f"2 steps by {way}" for way in ("accelerator", "plugins", "strategy") for _ in range(2)]
    assert lines == [*steps, "finds False", "finds False"]
    assert warned.count('write Trainer(strategy="ddp_find_unused_parameters_true") or DDPStrategy(') == 1, warned


def test_the_example_of_the_docs(tmp_path):
    before, after = ((EXAMPLES / f"lightning{version}.py").read_text() for version in (1, 2))
    ended = [run([PYTHON, write(tmp_path, START + before)], PL_TORCH_DISTRIBUTED_BACKEND="tutti"),
             forked_python.run([write(tmp_path, after)])]
    losses = [[line for line in one.stdout.split("\n") if line.startswith("loss")] for one in ended]
    assert losses[0] == losses[1] and len(losses[0]) == 3 and losses[0][0].endswith("on 2 ranks"), losses
