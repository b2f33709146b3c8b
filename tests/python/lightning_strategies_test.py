"""Every strategy of tutti.lightning trains in a Trainer, by every name that users give it."""

import os
import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import tutti.compat.horovod.torch as hvd
import tutti.lightning
from lightning_model import EVERY, GRADIENTS, Model, loader, model_for, pl, trainer, weights_of
from lightning_model import run_trainers
from tutti.lightning import _horovod

NAMES = ["tutti", "bagua", "ddp_sharded"]
SUFFIXES = ["", "_spawn", "_fork", "_notebook"]


def fits(rank, strategy):
    model = model_for(strategy)
    fitted = trainer(strategy, max_epochs=6)
    seen = []
    model.on_train_batch_start = lambda batch, batch_idx: seen.append(len(batch[0]))
    fitted.fit(model, loader(), loader(16))
    assert fitted.world_size == 2 and fitted.global_rank == rank
    assert seen == [8] * (6 * 4), "each rank has half of the 64 samples, in batches of 8"
    assert fitted.validate(model, loader(16), verbose=False)[0]["validation"] < 0.1
    test = fitted.test(model, loader(16), verbose=False)[0]["test"]
    assert test < 0.1
    assert len(torch.cat(fitted.predict(model, loader(16)))) == 8
    return weights_of(model).tolist(), float(test)


@pytest.mark.parametrize("strategy", EVERY)
def test_a_strategy_trains(strategy):
    (mine, test), (others, same_test) = run_trainers(2, fits, strategy)
    assert mine == others, "all ranks end with the same weights"
    assert test == same_test


class StartsApart(Model):
    """A model whose optimizer, as one that copies weights would, is made of weights that each rank has drawn for itself."""

    def setup(self, stage):
        torch.manual_seed(self.global_rank)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)
        self.register_buffer("own", torch.full((2,), float(self.global_rank)))
        self._bagua_params_and_buffers_to_ignore = ["own"]

    def configure_optimizers(self):
        self.copied = weights_of(self).tolist()
        return super().configure_optimizers()


def copies_weights(rank, strategy):
    model = StartsApart(optimizer="qadam" if strategy == "qadam" else "sgd")
    trainer(strategy, max_epochs=1).fit(model, loader())
    return model.copied, model.own.tolist()


@pytest.mark.parametrize("strategy", ["qadam", "decentralized", "tutti:gradient_allreduce,autotune=true"])
def test_an_optimizer_is_made_of_the_same_weights_on_all_ranks(strategy):
    (mine, own), (others, theirs) = run_trainers(2, copies_weights, strategy)
    assert mine == others
    assert own == [0, 0] and theirs == [1, 1], "each rank has this buffer for itself"


class StartsTied(StartsApart):
    """``StartsApart``, with a weight of two names of which it ignores one, and a quantized buffer."""

    def setup(self, stage):
        super().setup(stage)
        torch.nn.init.constant_(self.net[0].weight, self.global_rank)
        self.tied = torch.nn.Module()
        self.tied.weight = self.net[0].weight
        levels = torch.full((2,), self.global_rank + 1.0)
        self.register_buffer("levels", torch.quantize_per_tensor(levels, 0.1, 0, torch.qint8))
        self._bagua_params_and_buffers_to_ignore = ["own", "net.0.weight"]


def copies_tied_weights(rank, strategy):
    model = StartsTied()
    trainer(strategy, max_epochs=1).fit(model, loader())
    return model.copied, model.levels.int_repr().tolist()


def test_weights_of_two_names_and_quantized_buffers_are_those_of_rank_0():
    (mine, levels), (others, theirs) = run_trainers(2, copies_tied_weights, "decentralized")
    assert mine == others and levels == theirs


def names_a_buffer(rank, buffer, message):
    model = Model()
    model.register_buffer("kept", buffer)
    with pytest.raises(NotImplementedError, match=message):
        trainer("decentralized", max_epochs=1).fit(model, loader())


@pytest.mark.parametrize(("buffer", "message"), [
    pytest.param(torch.arange(3.0).expand(2, 3), "elements of buffer kept share memory, as those of .* expand", id="expanded"),
    pytest.param(torch.eye(3).to_sparse(), "buffer kept is a Sparse tensor on cpu", id="sparse"),
])
def test_buffers_that_cannot_travel_are_named(buffer, message):
    run_trainers(1, names_a_buffer, buffer, message)


def makes_another_module(rank, strategy):
    model = model_for(strategy)
    if rank == 1:
        model.net[2] = torch.nn.Linear(16, 2)
    with pytest.raises(ValueError, match=r"Model: rank 1 has net.2.weight float32 \(2, 16\) where rank 0 has net.2.weight"):
        trainer(strategy).fit(model, loader())


@pytest.mark.parametrize("strategy", ["qadam", "decentralized"])
def test_a_rank_with_another_module_is_named(strategy):
    run_trainers(2, makes_another_module, strategy)


def sees_batches(rank, strategy):
    model, seen = Model(), []
    fitted = trainer(strategy, max_epochs=1)
    model.on_train_batch_start = lambda batch, batch_idx: seen.append(len(batch[0]))
    fitted.fit(model, loader())
    assert seen == [8] * 4 and fitted.num_training_batches == 4
    return seen


@pytest.mark.parametrize("strategy", ["ddp", "tutti", "bagua", "ddp_sharded"])
def test_the_batch_size_is_that_of_a_device(strategy):
    assert sum(map(sum, run_trainers(2, sees_batches, strategy))) == 64, "ranks share the samples"


def trains_like_ddp(rank, strategy):
    model = Model()
    trainer(strategy, max_epochs=3).fit(model, loader())
    return weights_of(model).tolist()


def losses_of(rank, strategy):
    model, losses = Model(), []
    model.on_train_batch_end = lambda outputs, batch, batch_idx: losses.append(float(outputs["loss"]))
    trainer(strategy, max_steps=200, max_epochs=-1).fit(model, loader(256))
    return losses


@pytest.mark.parametrize("strategy", ["ddp", "tutti", "bagua"])
def test_the_loss_curve_is_that_of_gloo(strategy):
    ours, gloos = run_trainers(2, losses_of, strategy)[1], run_trainers(2, losses_of, "ddp", backend="gloo")[1]
    assert len(ours) == 200 and ours == pytest.approx(gloos, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("strategy", ["tutti", "bagua", "ddp_sharded", "ddp"])
def test_exact_strategies_are_ddp(strategy):
    ours = run_trainers(2, trains_like_ddp, strategy)[0]
    assert ours == pytest.approx(run_trainers(2, trains_like_ddp, "ddp", backend="gloo")[0], rel=1e-5, abs=1e-6)


def test_names_are_registered():
    registry = pl.strategies.StrategyRegistry
    for name in [name + suffix for name in NAMES for suffix in SUFFIXES] + ["horovod", "dp", "ddp2"]:
        assert name in registry.available_strategies(), name
        assert registry[name]["description"].endswith((".", "name.")), name
    assert registry["bagua"]["strategy"] is pl.strategies.BaguaStrategy is tutti.lightning.BaguaStrategy
    for name in ("TuttiStrategy", "HorovodStrategy", "DataParallelStrategy", "DDP2Strategy", "DDPShardedStrategy"):
        assert getattr(pl.strategies, name) is getattr(tutti.lightning, name)


def names_of(rank):
    for given, expected, method in [
        ("tutti", "gradient_allreduce:", "popen"), ("tutti:bytegrad", "bytegrad:", "popen"),
        ("tutti:bytegrad,codec=sign,error_feedback=true", "error_feedback=true,codec=sign", "popen"),
        ("tutti:bytegrad:codec=sign", "codec=sign", "popen"), ("bagua", "gradient_allreduce:", "popen"),
        ("tutti_spawn:async,sync_interval_ms=7", "sync_interval_ms=7", "spawn"),
        ("Tutti_Spawn:ByteGrad,codec=sign", "codec=sign", "spawn"),
    ]:
        strategy = trainer(given).strategy
        assert expected in strategy.algorithm and strategy._start_method == method, given
    strategy = trainer(tutti.lightning.BaguaStrategy("decentralized", peer_selection_mode="shift_one",
                                                     hierarchical=False)).strategy
    assert "hierarchical=false,peer_selection_mode=shift_one" in strategy.algorithm
    strategy = trainer("tutti:bytegrad,find_unused_parameters=true,codec=sign,bucket_cap_mb=3").strategy
    assert "codec=sign" in strategy.algorithm and strategy._ddp_kwargs["find_unused_parameters"] is True
    assert strategy._ddp_kwargs["bucket_cap_mb"] == 3
    for name in ("ddp_sharded_find_unused_parameters_false", "ddp_sharded_spawn_find_unused_parameters_false"):
        assert trainer(name).strategy._ddp_kwargs["find_unused_parameters"] is False
    with pytest.raises(ValueError, match="static_graph=maybe"):
        trainer("tutti:bytegrad,static_graph=maybe")
    assert trainer(tutti.lightning.BaguaStrategy("bytegrad", False, find_unused_parameters=True)
                   ).strategy._ddp_kwargs == {"find_unused_parameters": True, "gradient_as_bucket_view": False}


def test_strategy_names():
    run_trainers(1, names_of)


def mistakes(rank):
    for strategy, text in [("tutti:bytegrd", "bytegrad"), ("tutti:bytegrad,codec=zip", "codec"),
                           ("tutti:bytegrad,speed=9", "speed")]:
        with pytest.raises(ValueError, match=text):
            trainer(strategy)
    for wrong, meant in [("bytegrad", "tutti:bytegrad"), ("async,sync_interval_ms=9", "tutti:async,sync_interval_ms=9"),
                         ("bagua:bytegrad", "tutti:bytegrad"), ("bagua_spawn:qadam", "tutti_spawn:qadam"),
                         ("tuti:bytegrad,codec=bf16", "tutti:bytegrad,codec=bf16"),
                         ("tutti_thread:bytegrad", "tutti:bytegrad")]:
        with pytest.raises(ValueError, match=f"follows tutti, tutti_spawn, .*: write strategy='{meant}'"):
            pl.Trainer(strategy=wrong, accelerator="cpu")
    for unknown in ("tutti_thread:bytegrd", "bytegrd", "bagua:bytegrd", "tutti_thread"):
        with pytest.raises(ValueError, match="invalid strategy name"):
            pl.Trainer(strategy=unknown, accelerator="cpu")
    with pytest.raises(TypeError, match="algorithm is a int"):
        tutti.lightning.TuttiStrategy(3)
    with pytest.raises(ValueError, match="static_graph is an option"):
        trainer(tutti.lightning.TuttiStrategy("decentralized", static_graph=True)).fit(Model(), loader())
    with pytest.raises(ValueError, match="ddp_comm_hook"):
        trainer(tutti.lightning.TuttiStrategy(ddp_comm_hook=print)).fit(Model(), loader())
    for backend in ("gloo", None):
        with pytest.raises(ValueError, match=f"BaguaStrategy: process_group_backend={backend!r}; .* leave .* out"):
            tutti.lightning.BaguaStrategy(process_group_backend=backend)
    tutti.lightning.TuttiStrategy(process_group_backend="cpu:tutti,cuda:nccl")
    for mib in ("abc", "true", ""):
        with pytest.raises(ValueError, match=f"strategy 'bytegrad:.*: bucket_cap_mb={mib}; give a number of MiB above 0"):
            trainer(f"tutti:bytegrad,bucket_cap_mb={mib}")
    for strategy in ("bytegrad", "decentralized"):
        for mib in ("nan", "inf", "-1", "0"):
            with pytest.raises(ValueError, match=f"bucket_cap_mb={float(mib)}; give a number of MiB above 0, or None for 25"):
                trainer(f"tutti:{strategy},bucket_cap_mb={mib}")
        for name in ("flatten", "find_unused_parameters", "static_graph", "autotune"):
            with pytest.raises(TypeError, match=f"{name} is 'yes'; give True or False"):
                tutti.lightning.TuttiStrategy(strategy, **{name: "yes"})
    with pytest.raises(TypeError, match="HorovodStrategy: timeout is 5; give a datetime.timedelta"):
        tutti.lightning.HorovodStrategy(timeout=5)


def test_mistakes():
    run_trainers(1, mistakes)


def wrong_optimizers(rank):
    wrong = pl.utilities.exceptions.MisconfigurationException
    with pytest.raises(wrong, match="qadam can only accept one QAdamOptimizer.*returned SGD"):
        trainer("qadam").fit(Model(), loader())
    with pytest.raises(wrong, match="leave gradient_clip_val out"):
        trainer("qadam", gradient_clip_val=0.1).fit(model_for("qadam"), loader())
    with pytest.raises(wrong, match="ddp_sharded"):
        trainer(tutti.lightning.DDPShardedStrategy("decentralized")).fit(Model(), loader())
    with pytest.raises(ValueError, match='QAdamOptimizer belongs to a model: train by Trainer.strategy="tutti:qadam"'):
        trainer("ddp").fit(model_for("qadam"), loader())


def test_optimizers_that_do_not_suit():
    run_trainers(1, wrong_optimizers)


def warms_up(rank):
    for strategy, expected in (("qadam", "warmup_steps=4,"), ("qadam:warmup_steps=7", "warmup_steps=7,")):
        names = []
        model = model_for("qadam")
        fitted = trainer(strategy, max_epochs=1)
        model.on_train_start = lambda: names.append(fitted.strategy.algorithm)
        fitted.fit(model, loader())
        assert expected in names[0], names


def test_qadam_takes_the_warm_up_of_its_optimizer():
    run_trainers(2, warms_up)


@pytest.mark.parametrize("order", ["import tutti.lightning, {0} as pl", "import {0} as pl, tutti.lightning"])
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_either_lightning(package, order):
    script = f"""
{order.format(package)}
from {package}.strategies import BaguaStrategy
import sys
trainer = pl.Trainer(strategy=BaguaStrategy(algorithm="bytegrad"), accelerator="cpu", devices=1, logger=False)
assert isinstance(trainer.strategy, pl.strategies.DDPStrategy)
assert isinstance(pl.Trainer(strategy="tutti:async", accelerator="cpu", devices=1, logger=False).strategy, BaguaStrategy.__mro__[2])
other = {{"lightning.pytorch": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}}["{package}"]
assert other not in sys.modules, "the Lightning that the program does not use is not imported"
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_a_strategy_that_was_made_for_the_other_lightning():
    script = """
import tutti.lightning, lightning.pytorch, pytorch_lightning
strategy = lightning.pytorch.strategies.BaguaStrategy("bytegrad", codec="bf16")
trainer = pytorch_lightning.Trainer(strategy=strategy, accelerator="cpu", devices=1, logger=False)
assert isinstance(trainer.strategy, pytorch_lightning.strategies.BaguaStrategy) and "bf16" in trainer.strategy.algorithm
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@pytest.mark.parametrize("first", ["", "import lightning.fabric; ", "import pytorch_lightning; "])
def test_the_classes_of_a_program_that_has_not_imported_the_trainer(first):
    """Each class is that of the Lightning which the program then imports, or has imported."""
    package = "pytorch_lightning" if "pytorch" in first else "lightning.pytorch"
    script = f"""
{first}import importlib, tutti.lightning
strategy = tutti.lightning.TuttiStrategy
assert strategy is importlib.import_module("{package}.strategies").TuttiStrategy
from tutti.lightning import BaguaStrategy, HorovodStrategy
base = importlib.import_module("{package}.strategies").DDPStrategy
assert all(issubclass(one, base) for one in (strategy, BaguaStrategy, HorovodStrategy))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_importing_imports_no_lightning():
    subprocess.run([sys.executable, "-c", "import sys, tutti.lightning; assert 'lightning' not in sys.modules; "
                    "assert 'pytorch_lightning' not in sys.modules"], check=True, timeout=100)


def backend_of_ddp(rank):
    tutti.lightning.use_for_ddp()
    assert trainer("ddp").strategy._process_group_backend == "tutti"
    assert trainer("ddp_find_unused_parameters_true").strategy._process_group_backend == "tutti"
    assert trainer(pl.strategies.DDPStrategy()).strategy._process_group_backend is None


def test_ddp_on_tutti():
    run_trainers(1, backend_of_ddp)


@pytest.mark.parametrize("value, backend", [("1", "tutti"), ("0", None)])
def test_the_variable_that_asks_for_ddp_on_tutti(value, backend):
    script = f"""
import tutti.lightning, lightning.pytorch as pl
strategy = pl.Trainer(strategy="ddp", accelerator="cpu", devices=1, logger=False).strategy
assert strategy._process_group_backend == {backend!r}, strategy._process_group_backend
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100,
                   env=os.environ | {"TUTTI_LIGHTNING_DDP": value})


def test_a_spawned_process_knows_the_backend_of_ddp():
    """What spawn pickles of `ddp_spawn`, which is Lightning's own class, brings the backend along."""
    program = """
import os, pickle, subprocess, sys
if len(sys.argv) == 1:
    import tutti.lightning, lightning.pytorch as pl
    tutti.lightning.use_for_ddp()
    strategy = pl.Trainer(strategy="ddp_spawn", accelerator="cpu", devices=2, logger=False).strategy
    child = subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"],
                           input=pickle.dumps(strategy._process_group_backend), check=True)
else:
    backend = pickle.loads(sys.stdin.buffer.read())
    import torch.distributed as dist
    assert backend == "tutti" and dist.is_backend_available("tutti"), backend
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


def trains_unused(rank, strategy):
    model = model_for(strategy)
    model.more = torch.nn.Linear(3, 3)
    before = model.more.weight.detach().clone()
    trainer(tutti.lightning.TuttiStrategy(strategy, find_unused_parameters=True), max_epochs=1).fit(model, loader())
    assert torch.equal(model.more.weight, before)


@pytest.mark.parametrize("strategy", [*GRADIENTS, "decentralized", "qadam"])
def test_unused_parameters(strategy):
    run_trainers(2, trains_unused, strategy)


def names_the_option_for_unused(rank):
    for strategy, meant in (
            ("tutti:bytegrad,codec=bf16", '"tutti:bytegrad,codec=bf16,find_unused_parameters=true", or '
             'strategy=TuttiStrategy(…, find_unused_parameters=True)'),
            (tutti.lightning.BaguaStrategy(), "BaguaStrategy(…, find_unused_parameters=True)")):
        model = Model()
        model.more = torch.nn.Linear(3, 3)
        with pytest.raises(RuntimeError, match=f"of Model were not used .*: .* write strategy={re.escape(meant)}$"):
            trainer(strategy, max_epochs=1).fit(model, loader())


def test_the_error_about_unused_parameters_names_the_option():
    run_trainers(2, names_the_option_for_unused)


SCHEDULERS = {
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
    "cyclic": lambda optimizer: torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3),
    "sequential": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(optimizer, [
        torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 2), torch.optim.lr_scheduler.StepLR(optimizer, 2)], [3]),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_horovod_multiplies_the_rates_of_schedulers(name):
    def rates(factor):
        optimizer = torch.optim.SGD([torch.zeros(1)], 0.1, momentum=0.9)
        scheduler, seen = SCHEDULERS[name](optimizer), []
        _horovod.scale_optimizer(optimizer, factor)
        _horovod.scale_scheduler(scheduler, factor)
        for _ in range(8):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return seen

    assert rates(4) == pytest.approx([4 * rate for rate in rates(1)])


def test_horovod_multiplies_once_a_rate_that_groups_share():
    rate = torch.tensor(0.125)
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1)]} for _ in range(3)], rate)
    _horovod.scale_optimizer(optimizer, 4)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.5] * 3
    assert rate == 0.125


def keeps_its_rates(rank):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    model.configure_optimizers = lambda: ([optimizer], [scheduler])
    rates = []
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")  # as torchrun does
    for _ in range(2):
        trainer("horovod", max_epochs=1).fit(model, loader())
        rates += [optimizer.param_groups[0]["lr"], *scheduler.base_lrs]
    return rates


def test_horovod_multiplies_rates_once_for_several_fits():
    assert run_trainers(2, keeps_its_rates) == [pytest.approx([0.1] * 4)] * 2


def rates_of_epochs(rank, path, epochs, resumes):
    model, rates = Model(), []

    def configure_optimizers():
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    model.configure_optimizers = configure_optimizers
    model.on_train_epoch_start = lambda: rates.append(model.optimizers().param_groups[0]["lr"])
    os.environ.update(RANK=str(rank), WORLD_SIZE=os.environ["TEST_RANKS"], LOCAL_WORLD_SIZE=os.environ["TEST_RANKS"])
    fitted = trainer("horovod", max_epochs=epochs)
    fitted.fit(model, loader(), ckpt_path=path if resumes else None)
    fitted.save_checkpoint(path)
    return rates


def test_horovod_takes_rates_of_a_checkpoint_as_they_are(tmp_path):
    path = str(tmp_path / "a.ckpt")
    assert run_trainers(2, rates_of_epochs, path, 1, False) == [[0.2]] * 2
    assert run_trainers(2, rates_of_epochs, path, 2, True) == [[0.1]] * 2
    assert run_trainers(3, rates_of_epochs, path, 3, True) == [[0.05]] * 3


def starts_from_rank_0(rank, scale_lr):
    """What an optimizer trains with whose rate, momentum and scheduler each rank has made for itself."""
    model = Model()

    def configure_optimizers():
        optimizer = torch.optim.SGD(model.parameters(), 0.01 * (1 + rank), momentum=0.5)
        if rank == 0:
            for parameter in model.parameters():
                optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
        return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)]

    model.configure_optimizers = configure_optimizers
    seen = []
    model.on_train_batch_start = lambda batch, batch_idx: seen.append(model.optimizers().param_groups[0]["lr"])
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    strategy = tutti.lightning.HorovodStrategy(scale_lr=scale_lr)
    trainer(strategy, max_epochs=2).fit(model, loader(16, 8))
    return seen, weights_of(model).tolist()


@pytest.mark.parametrize("scale_lr", [True, False])
def test_optimizers_and_schedulers_of_horovod_are_those_of_rank_0(scale_lr):
    (rates, mine), (same_rates, others) = run_trainers(2, starts_from_rank_0, scale_lr)
    first = 0.02 if scale_lr else 0.01
    assert rates == same_rates == pytest.approx([first, first / 2])
    assert mine == others


def gathers(rank):
    model = Model()
    found = []

    def on_train_start():
        found.extend((hvd.rank(), hvd.size(), model.all_gather(torch.full((rank + 1, 2), rank)).tolist(),
                      model.all_gather(torch.tensor(rank)).tolist()))
        x = torch.ones(rank + 1, requires_grad=True)
        (model.all_gather(x, sync_grads=True) * torch.arange(3.0)).sum().backward()
        found.append(x.grad.tolist())
        with pytest.raises(ValueError, match="group is a group of some ranks"):
            model.all_gather(x, group=dist.new_group([0, 1]))

    model.on_train_start = on_train_start
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    trainer("horovod", max_epochs=1).fit(model, loader())
    return found


def test_hooks_of_horovod_gather_different_numbers_of_rows():
    rows = [[0, 0], [1, 1], [1, 1]], [0, 1]
    assert run_trainers(2, gathers) == [[0, 2, *rows, [0]], [1, 2, *rows, [1, 2]]]


def fits_in_parts(rank, strategy, epochs):
    """The weights after fits of so many epochs each, all with one optimizer and one scheduler."""
    model = model_for(strategy)
    optimizer = model.configure_optimizers()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model.configure_optimizers = lambda: ([optimizer], [scheduler])
    for count in epochs:
        fitted = trainer(strategy, max_epochs=count, use_distributed_sampler=False)  # which shuffles by the epoch
        fitted.fit(model, loader(seed=rank))
    assert fitted.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.05 * 0.5**sum(epochs))
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["qadam", "gradient_allreduce", "ddp_sharded"])
def test_a_second_fit_goes_on_with_the_optimizer(strategy):
    expected = run_trainers(2, fits_in_parts, strategy, [3])[0]
    assert run_trainers(2, fits_in_parts, strategy, [1, 2])[0] == pytest.approx(expected, abs=1e-6)


def fits_after_a_checkpoint(rank, file):
    model = Model()
    optimizer = model.configure_optimizers()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model.configure_optimizers = lambda: ([optimizer], [scheduler])

    def fit(epochs, **options):
        trainer("ddp_sharded", max_epochs=epochs, use_distributed_sampler=False).fit(model, loader(seed=rank), **options)

    fit(1)
    model.trainer.save_checkpoint(file)
    fit(2)
    fit(2, ckpt_path=file)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05 / 4)
    fit(1)
    return weights_of(model).tolist()


def test_sharded_optimizers_go_on_after_a_checkpoint(tmp_path):
    expected = run_trainers(2, fits_in_parts, "ddp_sharded", [3])[0]
    after = run_trainers(2, fits_after_a_checkpoint, str(tmp_path / "one.ckpt"))[0]
    assert after == pytest.approx(expected, abs=1e-6)
