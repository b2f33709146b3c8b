"""Lightning as users train with it, by the strategies of Tutti: every test fails where a strategy breaks the promise."""

import contextlib
import datetime
import os
import signal
import tempfile
import time
import warnings

import pytest
import torch
import torch.distributed as dist

import tutti.lightning
import tutti.torch
from lightning_model import EVERY, GRADIENTS, WEIGHTS, Model, loader, model_for, pl, run_trainers, trainer, weights_of

NOT_QADAM = [strategy for strategy in EVERY if strategy != "qadam"]
ASYNC = "async:sync_interval_ms=1,warmup_steps=1000"  # the ranks step together: weights can be compared


def of_all_ranks(value):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, value)
    return every


def accumulates(rank, strategy):
    model, steps = model_for(strategy), []
    fitted = trainer(strategy, accumulate_grad_batches=2, max_epochs=2)
    model.on_before_optimizer_step = lambda optimizer: steps.append(fitted.global_step)
    fitted.fit(model, loader())
    assert fitted.global_step == len(steps) == 4, "two batches of each rank's four make a step"
    assert len(set(map(tuple, of_all_ranks(weights_of(model).tolist())))) == 1
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", EVERY)
def test_accumulation(strategy):
    ours = run_trainers(2, accumulates, strategy)[0]
    if strategy == "gradient_allreduce":
        assert ours == pytest.approx(run_trainers(2, accumulates, "ddp", backend="gloo")[0], rel=1e-5, abs=1e-6)


def clips(rank, strategy, algorithm):
    model, largest = model_for(strategy), []
    def record(optimizer):
        grads = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        largest.append(float(grads.norm() if algorithm == "norm" else grads.abs().max()))
    fitted = trainer(strategy, gradient_clip_val=0.01, gradient_clip_algorithm=algorithm, max_epochs=1)
    model.on_before_zero_grad = lambda optimizer: record(optimizer) if model.net[0].weight.grad is not None else None
    fitted.fit(model, loader())
    assert largest and max(largest) <= 0.0101, largest


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("strategy", NOT_QADAM)
def test_clipping(strategy, algorithm):
    run_trainers(2, clips, strategy, algorithm)


class Overflows(Model):
    """The gradients of rank 1 overflow in its second batch."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return loss * float("inf") if batch_idx == 1 and self.global_rank == 1 else loss


def mixes_precision(rank, strategy):
    torch.manual_seed(0)
    model, weights = Overflows(), []
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plugin = pl.plugins.MixedPrecision("16-mixed", "cpu", scaler)
    fitted = trainer(strategy, plugins=[plugin], max_epochs=1)
    model.on_train_batch_end = lambda outputs, batch, batch_idx: weights.append(weights_of(model).clone())
    fitted.fit(model, loader())
    assert all(one.isfinite().all() for one in weights)
    if strategy in GRADIENTS:
        assert torch.equal(weights[1], weights[0]) and not torch.equal(weights[2], weights[1]), "one step was skipped"
    assert fitted.precision_plugin.scaler.get_scale() == 512.0, "the scale of every rank went down"
    assert len(set(map(tuple, of_all_ranks(weights_of(model).tolist())))) == 1


@pytest.mark.parametrize("strategy", [*GRADIENTS, "bytegrad:error_feedback=true", "decentralized",
                                      "low_precision_decentralized", ASYNC])
def test_a_step_that_overflows_is_skipped_by_all(strategy):
    run_trainers(2, mixes_precision, strategy)


def trains_in_bf16(rank, strategy):
    model = model_for(strategy)
    fitted = trainer(strategy, precision="bf16-mixed", max_epochs=6)
    fitted.fit(model, loader())
    assert fitted.validate(model, loader(16), verbose=False)[0]["validation"] < 0.1


@pytest.mark.parametrize("strategy", EVERY)
def test_bf16(strategy):
    run_trainers(2, trains_in_bf16, strategy)


class TwoOptimizers(Model):
    """Each half of the net has an optimizer, and the loop is written by hand."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(self.net[i].parameters(), 0.05) for i in (0, 2)]


def optimizes_by_hand(rank, strategy):
    model = TwoOptimizers()
    fitted = trainer(strategy, max_epochs=6)
    fitted.fit(model, loader())
    assert fitted.global_step == 2 * 6 * 4
    assert len(set(map(tuple, of_all_ranks(weights_of(model).tolist())))) == 1
    return weights_of(model).tolist(), fitted.validate(model, loader(16), verbose=False)[0]["validation"]


class Adversaries(TwoOptimizers):
    """One backward comes after the step of the other optimizer, as in a GAN."""

    together = False

    def training_step(self, batch, batch_idx):
        first, last = self.optimizers()
        with self.trainer.model.one_step() if self.together else contextlib.nullcontext():
            loss = self.loss(batch)
            first.zero_grad()
            self.manual_backward(self.loss(batch))
            first.step()
            last.zero_grad()
            self.manual_backward(loss)
            last.step()


def trains_adversaries(rank, strategy):
    model = Adversaries()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trainer(strategy).fit(model, loader())
    model.together = True
    trainer(strategy).fit(model, loader())


@pytest.mark.parametrize("strategy", WEIGHTS)
def test_a_backward_after_the_step_of_another_optimizer(strategy):
    run_trainers(2, trains_adversaries, strategy)


@pytest.mark.parametrize("strategy", NOT_QADAM)
def test_manual_optimization_of_several_optimizers(strategy):
    ours, loss = run_trainers(2, optimizes_by_hand, strategy)[0]
    assert loss < 0.1
    if strategy == "gradient_allreduce":
        gloo = run_trainers(2, optimizes_by_hand, "ddp", backend="gloo")[0][0]
        assert ours == pytest.approx(gloo, rel=1e-5, abs=1e-6)


class Logs(Model):

    def training_step(self, batch, batch_idx):
        self.log("rank", float(self.global_rank), on_step=True, on_epoch=True, sync_dist=True)
        self.log("most", float(self.global_rank), sync_dist=True, reduce_fx="max")
        features = self.net[0](batch[0])
        gathered = self.all_gather(features, sync_grads=True)
        assert gathered.shape == (self.trainer.world_size, *features.shape)
        assert gathered.requires_grad
        everywhere = self.all_gather({"rank": torch.tensor(self.global_rank)})["rank"]
        self.log("only rank 0", float(everywhere.sum()), rank_zero_only=True)
        return self.loss(batch) + 0 * gathered.sum()


def logs(rank, strategy):
    model = Logs()
    fitted = trainer(strategy, max_epochs=1)
    fitted.fit(model, loader())
    assert fitted.callback_metrics["rank_epoch"] == 0.5 and fitted.callback_metrics["most"] == 1
    assert rank != 0 or fitted.callback_metrics["only rank 0"] == 1


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_logging_and_gathering(strategy):
    run_trainers(2, logs, strategy)


class Worsens(Model):

    def validation_step(self, batch, batch_idx):
        self.log("rising", float(self.current_epoch + self.global_rank), sync_dist=True)


def stops_early(rank, options, epochs):
    fitted = trainer(max_epochs=9, callbacks=[pl.callbacks.EarlyStopping("rising", patience=99, **options)])
    fitted.fit(Worsens(), loader(), loader(16))
    assert fitted.current_epoch == epochs


@pytest.mark.parametrize("options, epochs", [
    ({"mode": "max", "stopping_threshold": 2.4}, 3), ({"divergence_threshold": 3.4}, 4)
])
def test_early_stopping(options, epochs):
    run_trainers(2, stops_early, options, epochs)


def schedules(rank, strategy):
    model, rates = model_for(strategy), []
    def configure():
        optimizer = Model.configure_optimizers(model)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]
    model.configure_optimizers = configure
    model.on_train_epoch_start = lambda: rates.append(model.optimizers().param_groups[0]["lr"])
    trainer(strategy, max_epochs=3).fit(model, loader())
    assert rates == pytest.approx([0.05, 0.025, 0.0125])


@pytest.mark.parametrize("strategy", [*EVERY, "ddp_sharded"])
@pytest.mark.filterwarnings("error:.*lr_scheduler.*")
def test_learning_rate_schedules(strategy):
    run_trainers(2, schedules, strategy)


def tunes(rank, strategy):
    model = model_for(strategy)
    fitted = trainer(strategy, max_epochs=1, default_root_dir=os.environ["TUNER_FOLDER"])
    found = pl.tuner.Tuner(fitted).lr_find(model, loader(), num_training=8, min_lr=1e-4, max_lr=0.1,
                                             early_stop_threshold=None)
    assert found is not None and len(found.results["lr"]) >= 3
    assert len(set(of_all_ranks(model.lr))) == 1
    fitted.fit(model, loader())


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_learning_rate_finder(strategy, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNER_FOLDER", str(tmp_path))
    run_trainers(2, tunes, strategy)


def has_sanity_checks(rank):
    model, validations = Model(), []
    model.on_validation_epoch_end = lambda: validations.append(model.trainer.sanity_checking)
    trainer("decentralized", num_sanity_val_steps=2, max_epochs=1).fit(model, loader(), loader(16))
    assert validations == [True, False]


def test_sanity_checks():
    run_trainers(2, has_sanity_checks)


class Differs(Model):
    """Remembers how far the weights of the ranks are apart."""

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.apart = self.distance()

    def on_validation_epoch_start(self):
        assert self.distance() == 0, "the ranks agree on their weights before a validation"

    def distance(self):
        weights = weights_of(self)
        return float((self.all_gather(weights) - weights).abs().max())


def agrees(rank, strategy):
    model = Differs()
    trainer(strategy, max_epochs=2, num_sanity_val_steps=0).fit(model, loader(), loader(16))
    assert model.apart > 0, "weights differ while the model trains"
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["decentralized:peer_selection_mode=shift_one", "async:sync_interval_ms=50"])
def test_agreement_before_validation_and_at_the_end(strategy):
    mine, others = run_trainers(2, agrees, strategy)
    assert mine == others


class Fails(Model):

    def training_step(self, batch, batch_idx):
        if batch_idx == 2 and self.global_rank == 1:
            raise ArithmeticError("a wrong sample")
        return super().training_step(batch, batch_idx)


def hears_of_an_error(rank, strategy):
    model = Fails(optimizer="qadam" if strategy == "qadam" else "sgd")
    begin = time.monotonic()
    with pytest.raises((ArithmeticError, dist.DistBackendError)) as raised:
        trainer(strategy, max_epochs=9).fit(model, loader())
    if rank == 1:
        assert isinstance(raised.value, ArithmeticError)
    else:
        assert "rank 1 failed: ArithmeticError: a wrong sample" in str(raised.value)
    return time.monotonic() - begin


@pytest.mark.parametrize("strategy", EVERY)
def test_an_exception_on_one_rank_ends_all(strategy):
    assert max(run_trainers(3, hears_of_an_error, strategy)) < 20


class Dies(Model):

    def training_step(self, batch, batch_idx):
        if batch_idx == 2 and self.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(batch, batch_idx)


def hears_of_a_death(rank, strategy):
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        trainer(strategy, max_epochs=9).fit(Dies(), loader())


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_a_killed_rank(strategy):
    run_trainers(3, hears_of_a_death, strategy, may_die=[1])


class IsTerminated(Model):

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx == 2 and self.global_rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def is_terminated(rank, strategy):
    model, seen = IsTerminated(), []
    model.on_train_batch_end = lambda outputs, batch, batch_idx: seen.append(batch_idx)
    with pytest.raises(BaseException) as raised:
        trainer(strategy, max_epochs=99).fit(model, loader())
    return type(raised.value).__name__, seen


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_sigterm_ends_all_ranks_after_the_same_step(strategy):
    assert run_trainers(2, is_terminated, strategy) == [("SIGTERMException", [0, 1, 2])] * 2


def is_terminated_while_ranks_agree(rank):
    fitted, calls, seen = trainer(max_epochs=9), [], []
    agree = fitted.strategy._agree_on_signals

    def agree_and_get_a_signal(mine):
        agreed = agree(mine)
        calls.append(agreed)
        if len(calls) == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return agreed

    fitted.strategy._agree_on_signals = agree_and_get_a_signal
    model = Model()
    model.on_train_batch_end = lambda outputs, batch, batch_idx: seen.append(batch_idx)
    with pytest.raises(BaseException) as raised:
        fitted.fit(model, loader())
    return type(raised.value).__name__, len(calls), seen


def test_a_signal_that_comes_while_ranks_agree_is_acted_on_next_time():
    first, second = run_trainers(2, is_terminated_while_ranks_agree)
    assert first == second and first[:2] == ("SIGTERMException", 4)


def is_terminated_with_a_peer(rank):
    """Rank 1 gets SIGTERM itself, while it agrees with rank 0, which has got SIGTERM before."""
    fitted = trainer(max_epochs=9)
    agree = fitted.strategy._agree_on_signals

    def agree_and_get_a_signal(mine):
        agreed = agree(mine)
        if rank == 1 and agreed[0]:
            os.kill(os.getpid(), signal.SIGTERM)
        return agreed

    fitted.strategy._agree_on_signals = agree_and_get_a_signal
    model = Model()
    if rank == 0:
        model.on_train_batch_end = lambda outputs, batch, batch_idx: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(BaseException) as raised:
        fitted.fit(model, loader())
    return type(raised.value).__name__, raised.value.code


def test_a_rank_that_is_told_to_end_while_ranks_agree_ends_as_one_that_was_told():
    assert run_trainers(2, is_terminated_with_a_peer) == [("SIGTERMException", None)] * 2


def test_sigterm_on_one_rank_of_async():
    (other, _), (terminated, _) = run_trainers(2, is_terminated, "async:sync_interval_ms=1")
    assert terminated == "SIGTERMException" and other == "DistBackendError"


def has_workers(rank, context):
    model = model_for("bytegrad")
    data = loader(num_workers=1, multiprocessing_context=context, persistent_workers=True)
    trainer("bytegrad", max_epochs=2).fit(model, data)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers(context):
    run_trainers(2, has_workers, context)


def brings_a_sampler(rank):
    sampler = torch.utils.data.SequentialSampler(range(64))
    model, seen = Model(), []
    model.on_train_batch_start = lambda batch, batch_idx: seen.append(len(batch[0]))
    trainer(use_distributed_sampler=False, max_epochs=1).fit(model, loader(sampler=sampler))
    assert sum(seen) == 64, "every rank sees all samples"


def test_samplers_of_the_user():
    run_trainers(2, brings_a_sampler)


def has_fewer_batches(rank, batches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(use_distributed_sampler=False, max_steps=5).fit(Model(), loader(8 * batches[rank]))
    return [str(one.message) for one in caught if "batches" in str(one.message) and "make each step" in str(one.message)]


def test_unequal_numbers_of_batches():
    said, others = run_trainers(2, has_fewer_batches, [8, 7])
    assert others == [] and len(said) == 1
    assert said[0].startswith("rank 1 has 7 training batches and rank 0 has 8.") and "limit_train_batches=7" in said[0]
    assert run_trainers(2, has_fewer_batches, [6, 6]) == [[], []]


class IsSlowOnRank1(Model):

    def training_step(self, batch, batch_idx):
        if self.global_rank == 1:
            time.sleep(0.2)
        return self.loss(batch)


def steps_beside_a_slow_rank(rank, callback):
    """The seconds of 20 batches, and what was said of callbacks that wait."""
    model, begins = IsSlowOnRank1(), []
    model.on_train_batch_start = lambda batch, batch_idx: begins.append(time.monotonic())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = trainer("async:sync_interval_ms=1", max_epochs=1, callbacks=[callback],
                         enable_checkpointing=isinstance(callback, pl.callbacks.ModelCheckpoint))
        fitted.fit(model, loader(2 * 21, batch_size=1))
    said = [str(one.message) for one in caught if "lets all ranks wait" in str(one.message)]
    return begins[20] - begins[0], said


HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize("waits, callback", [
    ("Timer, which max_time makes,", pl.callbacks.Timer(HOUR)), ("", pl.callbacks.Timer(HOUR, interval="epoch")),
    ("ModelCheckpoint", pl.callbacks.ModelCheckpoint(tempfile.gettempdir(), train_time_interval=HOUR)),
])
def test_callbacks_that_let_the_ranks_of_async_wait(waits, callback):
    (quick, said), (slow, others) = run_trainers(2, steps_beside_a_slow_rank, callback)
    assert slow > 20 * 0.2 and (quick > 0.7 * slow) == bool(waits), "a rank waits where the warning says so"
    assert others == [] and len(said) == bool(waits) and all(one.startswith(waits) for one in said)


def reduces(rank):
    model, results = Model(), {}
    def reduce():
        strategy = model.trainer.strategy
        for op in ("mean", "avg", "sum", "max", "min", "product"):
            results[op] = float(strategy.reduce(torch.tensor(rank + 1.0), reduce_op=op))
        results["group"] = float(strategy.reduce(torch.tensor(rank + 1.0), group=dist.group.WORLD, reduce_op="sum"))
        results["decision"] = strategy.reduce_boolean_decision(rank == 0, all=False)
        results["object"] = strategy.broadcast({"rank": rank}, src=1)["rank"]
    model.on_train_start = reduce
    trainer(tutti.lightning.BaguaStrategy(), max_epochs=1).fit(model, loader())
    assert results == {"mean": 1.5, "avg": 1.5, "sum": 3, "max": 2, "min": 1, "product": 2, "group": 3, "decision": True,
                       "object": 1}


def test_reductions_of_the_strategy():
    run_trainers(2, reduces)


class Normalizes(Model):

    def __init__(self):
        super().__init__()
        self.net.insert(1, torch.nn.BatchNorm1d(16))


def normalizes(rank, strategy):
    model, means = Normalizes(), []
    model.on_train_batch_end = lambda outputs, batch, batch_idx: means.append(model.net[1].running_mean.tolist())
    trainer(strategy, sync_batchnorm=True, max_epochs=1).fit(model, loader())
    assert type(model.net[1]) is torch.nn.BatchNorm1d, "after fit the layer is as before"
    return means


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "bagua", "decentralized"])
def test_sync_batchnorm(strategy):
    mine, others = run_trainers(2, normalizes, strategy)
    assert len(mine) == 4 and mine == others, "running statistics are those of the batches of both ranks"


def fits_again(rank, strategy):
    model = model_for(strategy)
    fitted = trainer(strategy, max_epochs=1)
    fitted.fit(model, loader(), loader(16))
    fitted.validate(model, loader(16), verbose=False)
    fitted.fit_loop.max_epochs = 3
    fitted.fit(model, loader(), loader(16))
    other = trainer(strategy, max_epochs=1)
    other.fit(model_for(strategy), loader())
    assert fitted.current_epoch == 3 and other.current_epoch == 1


@pytest.mark.parametrize("strategy", [*EVERY, "ddp_sharded"])
def test_a_trainer_fits_again(strategy):
    run_trainers(2, fits_again, strategy)


def compiles(rank, strategy):
    model = torch.compile(model_for(strategy), backend="eager")
    trainer(strategy, max_epochs=1).fit(model, loader())


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_a_compiled_module(strategy):
    run_trainers(2, compiles, strategy)


def closes_over_lbfgs(rank, strategy):
    model = Model()
    model.configure_optimizers = lambda: torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=4)
    fitted = trainer(strategy, max_epochs=2)
    fitted.fit(model, loader())
    assert fitted.validate(model, loader(16), verbose=False)[0]["validation"] < 0.3


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_lbfgs(strategy):
    run_trainers(2, closes_over_lbfgs, strategy)
