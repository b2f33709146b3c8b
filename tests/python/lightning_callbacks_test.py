"""Callbacks and hooks of Lightning that change gradients or weights, or what is trained, by the strategies of Tutti."""

import pytest
import torch
import torch.distributed as dist

import tutti.lightning
from lightning_model import EVERY, WEIGHTS, Model, loader, model_for, pl, run_trainers, trainer, weights_of

ASYNC = "async:sync_interval_ms=1,warmup_steps=1000"  # the ranks step together: weights can be compared


class ClipsInAHook(Model):

    clipped = 0

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        self.clip_gradients(optimizer, 0.5, "norm")
        self.clipped += 1


class ClipsByHand(Model):

    clipped = 0

    def __init__(self, **options):
        super().__init__(**options)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        self.clip_gradients(optimizer, 0.5, "value")
        self.clipped += 1
        optimizer.step()


def clips_momentum(rank, kind):
    model = kind(optimizer="qadam")
    fitted = trainer("qadam")
    with pytest.raises(ValueError, match="after the warm-up the gradients are momentum"):
        fitted.fit(model, loader())
    assert model.clipped == 4, "the steps of the warm-up"
    assert "clip_gradients" not in vars(fitted.strategy.precision_plugin)


@pytest.mark.parametrize("kind", [ClipsInAHook, ClipsByHand])
def test_momentum_is_not_clipped(kind):
    run_trainers(2, clips_momentum, kind)


class WithBackbone(Model):
    """A model whose first layer BackboneFinetuning freezes at first."""

    def __init__(self):
        super().__init__()
        self.backbone = self.net[0]

    def configure_optimizers(self):
        return torch.optim.SGD([one for one in self.parameters() if one.requires_grad], self.lr, momentum=0.5)


class WithBackboneInQAdam(WithBackbone):
    """A model whose optimizer has the backbone as its last group from the start."""

    def configure_optimizers(self):
        groups = [{"params": one.parameters()} for one in (self.net[2], self.backbone)]
        return tutti.lightning.QAdamOptimizer(groups, lr=self.lr, warmup_steps=4)  # those of the frozen epoch


def finetuning(epoch=1):
    return pl.callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=epoch, verbose=False)


def unfreezes_a_backbone(rank, strategy, options):
    model = WithBackboneInQAdam() if strategy == "qadam" else WithBackbone()
    before = weights_of(model.backbone)
    after = []
    model.on_train_epoch_end = lambda: after.append(weights_of(model.backbone))
    trainer(strategy, callbacks=[finetuning()], **options).fit(model, loader(shuffle=True))
    assert torch.equal(after[0], before) and not torch.equal(after[1], before)
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy, options", [
    *((strategy, {}) for strategy in EVERY), ("tutti:gradient_allreduce,autotune=true", {}), ("ddp_sharded", {}),
    ("horovod", {"devices": 1}),
], ids=str)
def test_a_backbone_that_is_unfrozen_later(strategy, options):
    ours, theirs = run_trainers(2, unfreezes_a_backbone, strategy, options)
    assert ours == theirs


def saves_a_finetuning(rank, path):
    fitted = trainer("ddp_sharded", callbacks=[finetuning()])
    fitted.fit(WithBackbone(), loader())
    fitted.save_checkpoint(path)


def goes_on_with_a_finetuning(rank, strategy, path):
    model, callback = WithBackbone(), finetuning()
    model.on_train_start = lambda: callback.make_trainable(model.backbone)  # which Lightning freezes anew
    trainer(strategy, max_epochs=4, callbacks=[callback]).fit(model, loader(), ckpt_path=path)
    return weights_of(model).tolist()


def test_sharded_optimizers_go_on_with_a_backbone_that_was_unfrozen_before(tmp_path):
    path = str(tmp_path / "unfrozen.ckpt")
    run_trainers(2, saves_a_finetuning, path)
    ours, theirs = run_trainers(2, goes_on_with_a_finetuning, "ddp_sharded", path)
    assert ours == theirs == pytest.approx(run_trainers(2, goes_on_with_a_finetuning, "tutti", path)[0], abs=1e-6)


class HeadInQAdam(WithBackbone):
    """A model whose optimizer is to get the backbone when that is unfrozen, as Lightning's other optimizers do."""

    def configure_optimizers(self):
        return tutti.lightning.QAdamOptimizer([one for one in self.parameters() if one.requires_grad], lr=self.lr)


def unfreezes_what_qadam_has_not(rank):
    model = HeadInQAdam()
    head, backbone = weights_of(model.net[2]), weights_of(model.backbone)
    trainer("qadam", callbacks=[finetuning(epoch=9)]).fit(model, loader())  # never
    assert torch.equal(weights_of(model.backbone), backbone) and not torch.equal(weights_of(model.net[2]), head)
    with pytest.raises(ValueError, match="give QAdamOptimizer all parameters in configure_optimizers"):
        trainer("qadam", callbacks=[finetuning()]).fit(model, loader())


def test_qadam_gets_no_backbone_while_it_trains():
    run_trainers(2, unfreezes_what_qadam_has_not)


def trains_everything_after_a_finetuning(rank):
    model, searches, callback = WithBackbone(), [], finetuning()
    fitted = trainer(callbacks=[callback])
    model.on_train_start = lambda: searches.append(fitted.model.find_unused_parameters)
    fitted.fit(model, loader())
    fitted.callbacks.remove(callback)
    fitted.fit_loop.max_epochs = 3
    fitted.fit(model, loader())
    assert searches == [True, False]


def test_unused_parameters_are_searched_in_the_fit_of_a_finetuning_alone():
    run_trainers(2, trains_everything_after_a_finetuning)


def averages(rank, strategy, kind):
    callback = {"swa": lambda: pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1),
                "ema": lambda: pl.callbacks.EMAWeightAveraging(decay=0.5)}[kind]()
    model, validated = model_for(strategy), []
    step = model.validation_step
    model.validation_step = lambda batch, batch_idx: (validated.append(weights_of(model)), step(batch, batch_idx))[1]
    fitted = trainer(strategy, max_epochs=4, callbacks=[callback])
    fitted.fit(model, loader(), loader(16))
    for weights in validated:
        every = [torch.empty_like(weights) for _ in range(2)]
        dist.all_gather(every, weights)
        assert torch.allclose(*every, atol=1e-6), "all ranks validate the same weights"
    assert fitted.validate(model, loader(16), verbose=False)[0]["validation"] < 0.3
    return weights_of(model).tolist()


@pytest.mark.parametrize("kind", ["swa", "ema"])
@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", ASYNC, "qadam"])
def test_averages_of_weights(strategy, kind):
    mine, others = run_trainers(2, averages, strategy, kind)
    assert mine == pytest.approx(others, abs=1e-6)


def saves_an_average(rank, strategy, folder):
    callback = pl.callbacks.EMAWeightAveraging(decay=0.9)
    save = pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)
    model = Model()
    average = {}

    class Looks(pl.Callback):

        def on_save_checkpoint(self, trainer, module, checkpoint):
            average["of this rank"] = weights_of(callback._average_model.module)
            average["saved"] = torch.cat([value.flatten() for value in checkpoint["state_dict"].values()])

    trainer(strategy, max_epochs=1, callbacks=[callback, save, Looks()], enable_checkpointing=True).fit(
        model, loader(48, shuffle=True))
    return average["of this rank"].tolist(), average["saved"].tolist()


@pytest.mark.parametrize("strategy", ["gradient_allreduce", *WEIGHTS])
def test_an_average_of_weights_in_a_checkpoint_is_that_of_the_ranks(strategy, tmp_path):
    (ours, saved), (others, theirs) = run_trainers(2, saves_an_average, strategy, str(tmp_path))
    assert ours == others == saved == theirs


class WritesOnOneRank(pl.Callback):

    def on_train_batch_end(self, trainer, model, *_):
        if trainer.global_rank == 1 and trainer.global_step == 2:
            with torch.no_grad():
                next(model.parameters()).add_(0.01)


def goes_on_though_one_rank_has_written(rank, strategy):
    model = model_for(strategy)
    trainer(strategy, max_epochs=1, callbacks=[WritesOnOneRank()]).fit(model, loader())
    return weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["decentralized", "low_precision_decentralized"])
def test_a_callback_may_write_the_weights_of_one_rank(strategy):
    mine, others = run_trainers(2, goes_on_though_one_rank_has_written, strategy)
    assert mine == pytest.approx(others, abs=1e-6)
