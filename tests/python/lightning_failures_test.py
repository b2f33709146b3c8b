"""Trainings that fail or are interrupted: what other ranks hear, what is saved, and what works afterwards."""

import datetime
import os
import signal
import threading
import time
import unittest.mock

import pytest
import torch
import torch.distributed as dist

import tutti.lightning
from lightning_model import Model, loader, model_for, pl, run_trainers, trainer, weights_of

SAVERS = {
    "on_exception": lambda folder: pl.callbacks.OnExceptionCheckpoint(folder),
    "save_on_exception": lambda folder: pl.callbacks.ModelCheckpoint(folder, save_on_exception=True),
    "save_last": lambda folder: pl.callbacks.ModelCheckpoint(folder, save_on_exception=True, save_last=True),
}


class Fails(Model):

    failing = (1,)

    def training_step(self, batch, batch_idx):
        if batch_idx == 2 and self.global_rank in self.failing:
            raise ArithmeticError("a wrong sample")
        return super().training_step(batch, batch_idx)


def saves_on_exception(rank, strategy, saver, failing, folder):
    model = Fails(optimizer="qadam" if strategy == "qadam" else "sgd")
    model.failing = (failing,)
    fitted = trainer(strategy, max_epochs=9, enable_checkpointing=True, callbacks=[SAVERS[saver](folder)])
    with pytest.raises(ArithmeticError if rank == failing else dist.DistBackendError, match="a wrong sample"):
        fitted.fit(model, loader())


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "qadam", "ddp_sharded"])
def test_a_checkpoint_on_an_exception(strategy, saver, failing, tmp_path):
    run_trainers(2, saves_on_exception, strategy, saver, failing, str(tmp_path))
    paths = sorted(tmp_path.glob("*.ckpt"))
    assert paths and (tmp_path / "last.ckpt" in paths) == (saver == "save_last")
    for path in paths:
        saved = torch.load(path, weights_only=False)
        assert saved["global_step"] == 2 and "tutti" not in saved
        (optimizer,) = saved["optimizer_states"]
        assert optimizer["param_groups"] and bool(optimizer["state"]) == (strategy != "ddp_sharded")


def goes_on_after_an_exception(rank, path):
    """The weights at the end of the epoch, under ddp_sharded and under a strategy that shards nothing."""
    weights = []
    for strategy in ("ddp_sharded", "gradient_allreduce"):
        fitted, model = trainer(strategy, max_epochs=1), Model()
        fitted.fit(model, loader(), ckpt_path=path)
        assert fitted.global_step == 4
        weights.append(weights_of(model).tolist())
    return weights


def warns_of_what_it_saves(rank, folder):
    if rank == 1:
        return saves_on_exception(rank, "ddp_sharded", "on_exception", 1, folder)
    with pytest.warns(UserWarning, match="goes on from .*on_exception.ckpt has its weights, and begins with an empty state"):
        saves_on_exception(rank, "ddp_sharded", "on_exception", 1, folder)


def test_a_sharded_training_goes_on_from_what_an_exception_left(tmp_path):
    run_trainers(2, warns_of_what_it_saves, str(tmp_path))
    for sharded, whole in run_trainers(2, goes_on_after_an_exception, str(tmp_path / "on_exception.ckpt")):
        assert sharded == whole


def ends_without_its_state(rank, without, path):
    def state_of(exchange):  # the exchange for the next step has failed, which nobody will make
        raise dist.DistBackendError("the state cannot be saved: enough")

    fitted = trainer("decentralized", max_epochs=1)
    if rank in without:
        tutti.lightning._states.state_of = state_of
        with pytest.warns(UserWarning, match="the state cannot be saved: enough.*have no state of the strategy"):
            fitted.fit(Model(), loader())
    else:
        fitted.fit(Model(), loader())
    assert fitted.strategy._signals is None, "the rest of the teardown has come"
    fitted.save_checkpoint(path)
    assert "tutti" not in torch.load(path, weights_only=False)


@pytest.mark.parametrize("without", [(0, 1), (1,)])
def test_a_state_that_cannot_be_read_at_the_end_of_a_fit_is_a_warning(without, tmp_path):
    run_trainers(2, ends_without_its_state, without, str(tmp_path / "last.ckpt"))


def hears_of_an_exception_without_text(rank):
    model = Model()
    if rank == 1:
        model.on_train_batch_end = unittest.mock.Mock(side_effect=AssertionError)
    text = "" if rank == 1 else r"rank 1 failed: AssertionError \(told by rank 1\)"
    with pytest.raises(AssertionError if rank == 1 else dist.DistBackendError, match=text):
        trainer(max_epochs=9).fit(model, loader())


def test_an_exception_without_text_is_told_by_its_name():
    run_trainers(2, hears_of_an_exception_without_text)


class StepsAlone(Model):
    """A model whose steps wait for no other rank: with async it hears of others by the strategy alone."""

    failing = 1

    def training_step(self, batch, batch_idx):
        time.sleep(0.01)
        if batch_idx == 20 and self.global_rank == self.failing:
            self.failed_at = time.monotonic()
            raise ArithmeticError("a wrong sample")
        return self.loss(batch)


def hears_in_the_middle_of_an_epoch(rank, failing):
    model = StepsAlone()
    model.failing = failing
    with pytest.raises(ArithmeticError if rank == failing else dist.DistBackendError, match="a wrong sample"):
        trainer("async:sync_interval_ms=1", max_epochs=1).fit(model, loader(2 * 6000, batch_size=1))  # for a minute
    return getattr(model, "failed_at", None), time.monotonic()  # by the clock of all processes


@pytest.mark.parametrize("failing", [0, 1])
def test_an_exception_on_one_rank_of_async_ends_the_epoch_of_the_others(failing):
    times = run_trainers(2, hears_in_the_middle_of_an_epoch, failing)
    failed_at, _ = times[failing]
    assert max(ended_at for _, ended_at in times) - failed_at < 20


def goes_on_after_an_exception_of_all(rank, strategy):
    model = Fails()
    model.failing = (0, 1)
    for _ in range(2):
        with pytest.raises(ArithmeticError):
            trainer(strategy, max_epochs=1).fit(model, loader())
    well = model_for(strategy)
    trainer(strategy, max_epochs=1).fit(well, loader())
    return weights_of(well).tolist()


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "low_precision_decentralized"])
def test_an_exception_of_all_ranks_may_be_caught(strategy):
    mine, others = run_trainers(2, goes_on_after_an_exception_of_all, strategy)
    assert mine == others


class AsksInSetup(Fails):
    """A model whose hook before the strategy's own setup takes a value of rank 0, as a path for all ranks."""

    failing = (0, 1)

    def setup(self, stage):
        self.given = self.trainer.strategy.broadcast(self.global_rank)


def asks_after_an_exception_of_all(rank):
    model, fitted = AsksInSetup(), trainer(max_epochs=1)
    with pytest.raises(ArithmeticError):
        fitted.fit(model, loader())
    model.failing = ()
    fitted.fit(model, loader())
    return model.given


def test_a_trainer_that_goes_on_after_an_exception_broadcasts_in_setup():
    assert run_trainers(2, asks_after_an_exception_of_all) == [0, 0]


def makes_groups_anew(rank, failing, path):
    """Rank `failing` fails alone in the first group and in the second, all fail together in the third, and again."""
    dist.destroy_process_group()
    store = dist.FileStore(path, 2)
    model = Fails()
    for model.failing in ((failing,), (failing,), (0, 1)):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=20))
        with pytest.raises(ArithmeticError if rank in model.failing else dist.DistBackendError, match="a wrong sample"):
            trainer(max_epochs=1).fit(model, loader())
        if model.failing != (0, 1):
            dist.destroy_process_group()
    with pytest.raises(ArithmeticError):
        trainer(max_epochs=1).fit(model, loader())
    trainer(max_epochs=1).fit(Model(), loader())


@pytest.mark.parametrize("failing", [0, 1])
def test_an_exception_of_all_ranks_in_groups_that_were_made_anew(failing, tmp_path):
    run_trainers(2, makes_groups_anew, failing, str(tmp_path / "store"))


def fails_where_the_store_is_silent(rank):
    class Silent:
        def add(self, *_):
            threading.Event().wait()

    silence = unittest.mock.patch.object(dist.distributed_c10d, "_get_default_store", Silent)
    model = Fails()
    model.on_train_batch_start = lambda batch, batch_idx: (batch_idx == 2 and silence.start()) and None
    with pytest.raises(ArithmeticError if rank == 1 else dist.DistBackendError, match="a wrong sample"):
        trainer(max_epochs=1).fit(model, loader())
    silence.stop()


def test_an_exception_is_told_where_the_store_is_silent():
    run_trainers(2, fails_where_the_store_is_silent)


def gets_a_signal(rank, size, when):
    model, callback = Model(), None
    fitted = trainer("decentralized", max_epochs=2)
    def send(*_):
        if rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
    if when == "last validation":
        model.on_validation_batch_start = lambda batch, batch_idx: fitted.current_epoch == 1 and send()
    else:
        model.on_train_batch_start = lambda batch, batch_idx: (
            batch_idx == 0 and fitted.current_epoch == 1 and send() and None)
    with pytest.raises(BaseException) as raised:
        fitted.fit(model, loader(), loader(16))
    assert type(raised.value).__name__ == "SIGTERMException"
    assert raised.value.code == (None if rank == 0 else 128 + signal.SIGTERM)  # rank 1 was not told to end


@pytest.mark.parametrize("when", ["last validation", "last epoch"])
@pytest.mark.parametrize("size", [1, 2])
def test_sigterm(size, when):
    if size == 1 and when == "last validation":
        pytest.skip("one rank has Lightning's own handlers, which act in the next training batch")
    run_trainers(size, gets_a_signal, size, when)


def scales_twice(rank, strategy):
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    fitted = trainer(strategy, max_epochs=1, plugins=[pl.plugins.MixedPrecision("16-mixed", "cpu", scaler)])
    model = Model()
    fitted.fit(model, loader())
    assert fitted.precision_plugin.scaler is scaler and scaler.get_scale() == 1024.0
    fitted.fit_loop.max_epochs = 2
    fitted.fit(model, loader())
    assert scaler.get_scale() == 4096.0


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "async:sync_interval_ms=1"])
def test_a_scaler_goes_on_in_the_next_fit(strategy):
    run_trainers(2, scales_twice, strategy)


def saves_after_fit(rank, strategy, path):
    model = model_for(strategy)
    fitted = trainer(strategy, max_epochs=1)
    fitted.fit(model, loader())
    fitted.validate(model, loader(16), verbose=False)
    fitted.save_checkpoint(path)
    states = torch.load(path, weights_only=False)["tutti"]
    assert len(states) == 2 and all(len(state["state"]) > 0 for state in states)


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized", "qadam"])
def test_a_checkpoint_after_fit_has_the_state_of_the_strategy(strategy, tmp_path):
    run_trainers(2, saves_after_fit, strategy, str(tmp_path / "last.ckpt"))


class Normalizes(Model):

    def __init__(self):
        super().__init__()
        self.net.insert(1, torch.nn.BatchNorm1d(16))


def averages_with_batch_norm(rank, strategy):
    model = Normalizes()
    swa = pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    trainer(strategy, max_epochs=4, callbacks=[swa]).fit(model, loader())
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "low_precision_decentralized"])
def test_averages_of_weights_with_batch_norm(strategy):
    mine, others = run_trainers(2, averages_with_batch_norm, strategy)
    assert mine == pytest.approx(others, abs=1e-6)


def a_group_of_another_backend(rank):
    with pytest.raises(ValueError, match="runs on gloo"):
        trainer("tutti").fit(Model(), loader())


def test_a_process_group_on_gloo():
    run_trainers(2, a_group_of_another_backend, backend="gloo")


class Shrinks(torch.optim.SGD):

    def __init__(self, params, lr, shrink=1.0):
        super().__init__(params, lr)
        self.shrink = shrink


def shards_what_it_can(rank):
    model = Model()
    def fit(make):
        model.configure_optimizers = lambda: make(model.parameters())
        trainer("ddp_sharded", max_epochs=1).fit(model, loader())
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
        fit(lambda parameters: kind(parameters, lr=0.001))
    with pytest.raises(ValueError, match="shrink of Shrinks"):
        fit(lambda parameters: Shrinks(parameters, 0.1))

    def hooked(parameters):
        optimizer = torch.optim.SGD(parameters, 0.1)
        optimizer.register_step_post_hook(lambda *_: None)
        return optimizer

    with pytest.raises(ValueError, match="SGD has hooks"):
        fit(hooked)
    with pytest.raises(ValueError, match='the step of LBFGS depends on all of them together: use strategy="tutti"'):
        fit(torch.optim.LBFGS)


def test_optimizers_that_cannot_be_sharded():
    run_trainers(1, shards_what_it_can)


OPTIMIZERS = [kind for kind in vars(torch.optim).values()
              if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer]


def steps(kind, parts):
    """Two parameters after three steps of as many optimizers as there are parts, whose sizes ``parts`` says."""
    parameters = [torch.nn.Parameter(torch.full((3, 2), value)) for value in (1.0, -2.0)]
    every, remaining = [], iter(parameters)
    for size in parts:
        every.append(kind([next(remaining) for _ in range(size)], lr=0.1))
    for step in range(3):
        for index, parameter in enumerate(parameters):
            gradient = torch.full((3, 2), 0.3 + index - 0.5 * step)
            parameter.grad = gradient.to_sparse(1) if kind is torch.optim.SparseAdam else gradient
        for optimizer in every:
            optimizer.step(lambda: torch.tensor(1.0))
    return torch.stack(parameters).tolist()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_which_optimizers_of_torch_step_each_parameter_by_itself(kind):
    assert (steps(kind, [2]) == steps(kind, [1, 1])) == (kind is not torch.optim.LBFGS), "ddp_sharded must refuse it"


def finds_a_rate(rank, strategy, find):
    model = Model()
    callbacks = [pl.callbacks.LearningRateFinder(num_training_steps=3, early_stop_threshold=None,
                                                 update_attr=False)] if find else []
    trainer(strategy, max_epochs=1, callbacks=callbacks, default_root_dir=os.environ["TUNER_FOLDER"]).fit(model, loader())
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["ddp_sharded", "gradient_allreduce"])
def test_a_rate_finder_leaves_no_trace(strategy, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_FOLDER", str(tmp_path))
    assert run_trainers(2, finds_a_rate, strategy, True) == run_trainers(2, finds_a_rate, strategy, False)


def warms_up(optimizer):
    schedulers = torch.optim.lr_scheduler
    return schedulers.SequentialLR(optimizer, [
        schedulers.ConstantLR(optimizer, 0.5, 2), schedulers.StepLR(optimizer, 1, 0.5)], [2])


SCHEDULERS = {
    "sequential": warms_up,
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
}


def rates_of(rank, strategy, name, resume, folder):
    def make():
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.configure_optimizers = lambda: ([optimizer], [SCHEDULERS[name](optimizer)])
        model.on_train_epoch_start = lambda: rates.append(model.optimizers().param_groups[0]["lr"])
        return model

    rates, path = [], f"{folder}/rates.ckpt"
    fitted = trainer(strategy, max_epochs=3 if resume else 6)
    fitted.fit(make(), loader())
    if resume:
        fitted.save_checkpoint(path)
        trainer(strategy, max_epochs=6).fit(make(), loader(), ckpt_path=path)
    return rates


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_of_schedulers(name, resume, tmp_path):
    expected = run_trainers(2, rates_of, "ddp", name, False, str(tmp_path))[0]
    assert run_trainers(2, rates_of, "ddp_sharded", name, resume, str(tmp_path))[0] == pytest.approx(expected)
