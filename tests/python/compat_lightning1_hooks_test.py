"""Hooks of Lightning 1 are called again, with what they were given then."""

import pytest
import torch

from lightning1 import QUIET, in_both, model_of, run_old

pytestmark = in_both


def epoch_ends(pl):
    called = []

    class Model(model_of(pl)):

        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.log("number", float(batch_idx), on_step=True, on_epoch=True)
            return {"loss": loss, "twice": 2 * loss, "batch_idx": batch_idx}

        def training_epoch_end(self, outputs):
            called.append(("training", [(one["batch_idx"], one["twice"].item() == 2 * one["loss"].item(),
                                         one["twice"].requires_grad, one["loss"].requires_grad) for one in outputs]))
            called.append(self.trainer.callback_metrics["number"].item())  # of the epoch, not of the last step
            self.log("loss", torch.stack([one["loss"] for one in outputs]).mean())

        def on_train_epoch_end(self):
            called.append("on_train_epoch_end")

        def validation_step(self, batch, batch_idx):
            return batch_idx if batch_idx != 1 else None  # Lightning 1 left out steps that returned nothing

        def validation_epoch_end(self, outputs):
            called.append(("validation", outputs))
            self.log("val", float(sum(outputs)))

        def on_validation_epoch_end(self):
            called.append("on_validation_epoch_end")

        def test_step(self, batch, batch_idx):
            return {"rows": len(batch)}

        def test_epoch_end(self, outputs):
            called.append(("test", outputs))

    trainer = pl.Trainer(**QUIET, num_sanity_val_steps=0)
    model = Model()
    trainer.fit(model)
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    trainer.test(model, verbose=False)
    return called, metrics


def test_epoch_ends(package):
    (called, metrics), lines = run_old(epoch_ends, package)
    assert called == [
        ("validation", [0, 2, 3]), "on_validation_epoch_end",
        ("training", [(i, True, False, False) for i in range(4)]), 1.5, "on_train_epoch_end",
        ("test", [{"rows": 2}] * 4)
    ]
    assert metrics["val"] == 5 and metrics["loss"] != 0
    for name in "training", "validation", "test":
        (line,) = [one for one in lines if f"Model.{name}_epoch_end(outputs) is of Lightning 1" in one]
        assert f"def on_{name.replace('training', 'train')}_epoch_end(self)" in line


def several_dataloaders(pl):
    called = []

    class Model(model_of(pl)):

        def validation_step(self, batch, batch_idx, dataloader_idx):
            return 10 * dataloader_idx + batch_idx

        def validation_epoch_end(self, outputs):
            called.append(outputs)

        def val_dataloader(self):
            return [torch.utils.data.DataLoader(torch.ones(rows, 3), batch_size=2) for rows in (4, 6)]

    pl.Trainer(**QUIET).validate(Model(), verbose=False)
    return called


def test_several_dataloaders_give_a_list_each(package):
    assert run_old(several_dataloaders, package)[0] == [[[0, 1], [10, 11, 12]]]


def step_ends(pl, gathers):
    called = []

    class Model(model_of(pl)):

        def training_step_end(self, outputs):
            called.append("training")
            return 3 * outputs

        def training_epoch_end(self, outputs):
            called.append([one["loss"].item() for one in outputs])

        def validation_step(self, batch, batch_idx):
            return 1

        def validation_step_end(self, outputs):
            called.append("validation")
            return outputs + 1

        def validation_epoch_end(self, outputs):
            called.append(outputs)

    model = Model()
    torch.nn.init.constant_(model.layer.weight, 1)
    torch.nn.init.constant_(model.layer.bias, 0)
    trainer = pl.Trainer(**QUIET, limit_train_batches=1, limit_val_batches=1, num_sanity_val_steps=0)
    trainer.strategy.calls_step_end = gathers
    trainer.fit(model)
    return called, model.layer.bias.item()


@pytest.mark.parametrize("gathers, expected", [
    (False, (["training", "validation", [2], [18.0]], -0.125 * 2 * 3)),
    (True, ([[1], [6.0]], -0.125 * 2)),  # the strategy has called the hook with the gathered outputs
])
def test_step_ends(package, gathers, expected):
    assert run_old(step_ends, package, gathers)[0] == expected


def manual_optimization(pl):
    called = []

    class Model(model_of(pl)):

        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            self.toggle_optimizer(second, 1)  # the other parameters have no gradient meanwhile
            called.append([one.requires_grad for one in self.parameters()])
            self.untoggle_optimizer(1)
            called.append([one.requires_grad for one in self.parameters()])
            self.manual_backward(self.loss(batch), first)  # Lightning 1.0 asked for the optimizer
            first.step()
            second.step()
            return {"batch_idx": batch_idx}

        def on_before_optimizer_step(self, optimizer, optimizer_idx):
            called.append(optimizer_idx)

        def training_epoch_end(self, outputs):
            called.append(outputs)

        def configure_optimizers(self):
            return [torch.optim.SGD([one], 0.1) for one in self.parameters()]

    pl.Trainer(**QUIET, limit_train_batches=2).fit(Model())
    return called


def test_manual_optimization(package):
    step = [[False, True], [True, True], 0, 1]
    assert run_old(manual_optimization, package)[0] == step + step + [[{"batch_idx": 0}, {"batch_idx": 1}]]


def old_signatures(pl):
    called = {}

    def note(name, *values):
        called.setdefault(name, values)

    class Model(model_of(pl)):

        def optimizer_step(self, epoch, batch_nb, optimizer, optimizer_i, closure, on_tpu, using_native_amp, lbfgs):
            note("optimizer_step", epoch, batch_nb, optimizer_i, on_tpu, using_native_amp, lbfgs)
            super().optimizer_step(epoch, batch_nb, optimizer, optimizer_i, closure, on_tpu, using_native_amp, lbfgs)

        def optimizer_zero_grad(self, epoch, batch_idx, optimizer, optimizer_idx):
            note("optimizer_zero_grad", epoch, batch_idx, optimizer_idx)
            super().optimizer_zero_grad(epoch, batch_idx, optimizer, optimizer_idx)

        def backward(self, loss, optimizer, optimizer_idx):
            note("backward", type(optimizer).__name__, optimizer_idx)
            loss.backward()

        def configure_gradient_clipping(self, optimizer, optimizer_idx, gradient_clip_val, gradient_clip_algorithm):
            note("clipping", optimizer_idx, gradient_clip_val)
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

        def lr_scheduler_step(self, scheduler, optimizer_idx, metric):
            note("lr_scheduler_step", optimizer_idx, metric)
            super().lr_scheduler_step(scheduler, optimizer_idx, metric)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

        def on_train_batch_start(self, batch, batch_idx, dataloader_idx):
            note("on_train_batch_start", batch_idx, dataloader_idx)

        def on_train_epoch_end(self, outputs):
            note("on_train_epoch_end", len(outputs))

        def transfer_batch_to_device(self, batch, device):
            note("transfer", str(device))
            return batch.to(device)

        def on_predict_epoch_end(self, results):
            note("on_predict_epoch_end", [len(one) for one in results])

        def predict_step(self, batch, batch_idx):
            return self.layer(batch)

    class Callback(pl.Callback):

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx):
            note("callback", sorted(outputs), batch_idx, dataloader_idx)

        def on_before_optimizer_step(self, trainer, pl_module, optimizer, opt_idx):
            note("callback's step", opt_idx)

        def on_train_epoch_end(self, trainer, pl_module, outputs):
            note("callback's epoch", len(outputs))

    class Data(pl.LightningDataModule):

        def train_dataloader(self):
            return Model().train_dataloader()

        def transfer_batch_to_device(self, batch, device):
            note("data module's transfer", str(device))
            return batch.to(device)

    trainer = pl.Trainer(**QUIET, callbacks=[Callback()], gradient_clip_val=1.0)
    model = Model()
    before = model.layer.weight.clone()
    trainer.fit(model, datamodule=Data())
    trained = not torch.equal(before, model.layer.weight)
    trainer.predict(model)
    leftovers = [name for owner in (model, *trainer.callbacks) for name in vars(owner) if name in called]
    return called, trained, leftovers


def test_old_signatures(package):
    (called, trained, leftovers), lines = run_old(old_signatures, package)
    assert called == {
        "optimizer_step": (0, 0, 0, False, False, False), "optimizer_zero_grad": (0, 0, 0), "backward": ("SGD", 0),
        "clipping": (0, 1.0), "lr_scheduler_step": (0, None), "on_train_batch_start": (0, 0),
        "on_train_epoch_end": (4,), "transfer": ("cpu",), "data module's transfer": ("cpu",),
        "on_predict_epoch_end": ([4],), "callback": (["loss"], 0, 0), "callback's step": (0,), "callback's epoch": (4,)
    }
    assert trained and not leftovers
    assert ("Model.optimizer_step has arguments of Lightning 1: write def optimizer_step(self, epoch, batch_idx, "
            "optimizer, optimizer_closure)") in lines
    assert ("Callback.on_before_optimizer_step has arguments of Lightning 1: write def on_before_optimizer_step(self, "
            "trainer, pl_module, optimizer)") in lines


def signatures_that_take_more(pl):
    called = {}

    class Model(model_of(pl)):

        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_idx, *args, **kwargs):
            called["optimizer_step"] = (optimizer_idx, [callable(one) for one in args])
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_idx, *args, **kwargs)

        def backward(self, loss, optimizer, optimizer_idx, *args, **kwargs):
            called["backward"] = (type(optimizer).__name__, optimizer_idx, args)
            super().backward(loss, optimizer, optimizer_idx, *args, **kwargs)

        def on_train_batch_start(self, batch, batch_idx, dataloader_idx, *args):
            called["on_train_batch_start"] = (batch_idx, dataloader_idx, args)

        def on_train_batch_end(self, outputs, batch, batch_idx, dataloader_idx=None, *args):
            called["on_train_batch_end"] = (batch_idx, dataloader_idx, args)

    class Callback(pl.Callback):

        def on_before_optimizer_step(self, trainer, pl_module, optimizer, optimizer_idx, *args):
            called["callback"] = (optimizer_idx, args)

        def on_train_epoch_end(self, trainer, *args):
            called["callback's epoch"] = len(args)

    model = Model()
    before = model.layer.bias.item()
    pl.Trainer(**QUIET, limit_train_batches=1, callbacks=[Callback()]).fit(model)
    return called, before - model.layer.bias.item()


def test_old_signatures_that_take_more(package):
    (called, moved), lines = run_old(signatures_that_take_more, package)
    assert called == {
        "optimizer_step": (0, [True, False, False, False]), "backward": ("SGD", 0, ()),
        "on_train_batch_start": (0, 0, ()), "on_train_batch_end": (0, None, ()), "callback": (0, ()),
        "callback's epoch": 1
    }
    assert moved == pytest.approx(0.125 * 2) and len(lines) == 4


def new_signatures(pl):

    class Model(model_of(pl)):

        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

        def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
            assert dataloader_idx == 0

        def validation_step(self, batch, batch_idx):
            pass

        def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
            self.clip_gradients(optimizer, gradient_clip_val=gradient_clip_val)

        def on_train_batch_start(self, *args, **kwargs):
            assert len(args) == 2 and not kwargs

    pl.Trainer(**QUIET).fit(Model())


def test_todays_code_gives_no_line(package):
    assert run_old(new_signatures, package) == (None, [])


def renamed_hooks(pl):
    called = []

    class Model(model_of(pl)):

        def on_epoch_start(self):
            called.append("model: epoch")

        def on_train_epoch_start(self):
            called.append("model: train epoch")

        def on_batch_end(self):
            called.append("model: batch")

        def on_pretrain_routine_start(self):
            called.append("model: pretrain")

    class Callback(pl.Callback):

        def on_epoch_end(self, trainer, pl_module):
            called.append(f"callback: {pl_module.current_epoch}")

    pl.Trainer(**QUIET, limit_train_batches=1, callbacks=[Callback()]).fit(Model())
    return called


def test_renamed_hooks(package):
    called, lines = run_old(renamed_hooks, package)
    assert called == ["model: pretrain", "model: epoch", "model: train epoch", "model: batch", "callback: 0"]
    epochs = " and ".join(f"on_{stage}_epoch_{{}}" for stage in ("train", "validation", "test"))
    assert f"Model.on_epoch_start is of Lightning 1: write {epochs}".replace("{}", "start") in lines
    assert f"Callback.on_epoch_end is of Lightning 1: write {epochs}".replace("{}", "end") in lines


def hooks_that_nothing_calls(pl):

    class Model(model_of(pl)):

        def on_hpc_save(self, checkpoint):
            raise AssertionError("not called")

    class Callback(pl.Callback):

        def on_keyboard_interrupt(self, trainer, pl_module):
            raise AssertionError("not called")

    class Data(pl.LightningDataModule):

        def train_dataloader(self):
            return Model().train_dataloader()

        def on_train_dataloader(self):
            raise AssertionError("not called")

    pl.Trainer(**QUIET, callbacks=[Callback()]).fit(Model(), datamodule=Data())


def test_hooks_that_nothing_calls(package):
    assert run_old(hooks_that_nothing_calls, package)[1] == [
        "Model.on_hpc_save is of Lightning 1, and is not called: its work belongs to on_save_checkpoint",
        "Data.on_train_dataloader is of Lightning 1, and is not called: its work belongs to train_dataloader",
        "Callback.on_keyboard_interrupt is of Lightning 1, and is not called: its work belongs to on_exception"
    ]


def logs_and_hparams(pl):

    class Model(model_of(pl)):

        def __init__(self, hparams):
            super().__init__()
            self.hparams = hparams

        def training_step(self, batch, batch_idx):
            self.log("largest", float(batch_idx), on_step=False, on_epoch=True, sync_dist_op="max")
            return self.loss(batch)

    model = Model({"lr": 0.5})
    trainer = pl.Trainer(**QUIET)
    trainer.fit(model)
    return trainer.callback_metrics["largest"].item(), model.hparams.lr


def test_logs_and_hparams(package):
    found, lines = run_old(logs_and_hparams, package)
    assert found == (3, 0.5)
    assert "LightningModule.log(sync_dist_op=…) is of Lightning 1: write log(reduce_fx=…)" in lines


def returned_logs(pl):
    shown = []

    class Model(model_of(pl)):

        def training_step(self, batch, batch_idx):
            bar = {"batch": 0.0, "bar": 1.0}
            return {"loss": self.loss(batch), "log": {"batch": float(batch_idx)}, "progress_bar": bar}

        def training_epoch_end(self, outputs):
            return {"log": {"epoch_metric": torch.tensor(float(len(outputs)))}}

        def validation_step(self, batch, batch_idx):
            return {"val": float(batch_idx)}

        def validation_epoch_end(self, outputs):
            largest = max(one["val"] for one in outputs)
            return {"val_loss": largest - self.current_epoch, "log": {"largest": largest}, "words": "none"}

        def on_train_batch_end(self, *_):
            shown.append(sorted(self.trainer.progress_bar_metrics))

    stopping = pl.callbacks.EarlyStopping(monitor="val_loss", patience=2, mode="max")
    trainer = pl.Trainer(**QUIET | {"max_epochs": 9}, callbacks=[stopping], num_sanity_val_steps=0)
    trainer.fit(Model())
    return {name: value.item() for name, value in trainer.callback_metrics.items()}, trainer.current_epoch, shown[-1]


def test_metrics_that_hooks_return(package):
    (metrics, epochs, shown), lines = run_old(returned_logs, package)
    assert metrics == {"batch": 3, "bar": 1, "epoch_metric": 4, "largest": 3, "val_loss": 1} and epochs == 3
    assert shown == ["bar"]
    for hook in "training_step", "training_epoch_end", "validation_epoch_end":
        assert any(line.startswith(f'Model.{hook} returns metrics under "log" or "progress_bar"') for line in lines)


def logs_of_pieces(pl, devices):

    class Model(model_of(pl)):

        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            return {"loss": loss, "log": {"rows": torch.tensor(float(len(batch))), "batch": batch_idx},
                    "progress_bar": {"first": batch[:1, 0]}}

    trainer = pl.Trainer(**QUIET, strategy="dp", devices=devices, limit_train_batches=3)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(9, 3), batch_size=3))
    return {name: value.item() for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("devices, rows", [(1, 3), (2, 1.5)])
def test_metrics_that_pieces_of_a_batch_return_are_averaged(package, devices, rows):
    assert run_old(logs_of_pieces, package, devices)[0] == {"rows": rows, "batch": 2, "first": 1}


def monitored(pl, folder):

    class Model(model_of(pl)):

        def training_epoch_end(self, outputs):
            self.log("mean", float(self.current_epoch))

    callbacks = [pl.callbacks.ModelCheckpoint(folder, monitor="mean", filename="{mean:.0f}", mode="max"),
                 pl.callbacks.EarlyStopping("mean", patience=1)]
    trainer = pl.Trainer(**QUIET | {"max_epochs": 9, "enable_checkpointing": True}, callbacks=callbacks)
    trainer.fit(Model())
    return trainer.current_epoch, trainer.checkpoint_callback.best_model_path


def test_callbacks_monitor_what_epoch_ends_log(package, tmp_path):
    assert run_old(monitored, package, tmp_path)[0] == (2, f"{tmp_path}/mean=1.ckpt")


def modes(pl, kind):
    seen = []

    class Model(model_of(pl)):

        def __init__(self):
            super().__init__()
            self.layer.eval()  # as a library may load it

        def training_step(self, batch, batch_idx):
            seen.append(self.layer.training)
            if batch_idx == 2:
                self.layer.eval()
            return self.loss(batch)

        def validation_step(self, batch, batch_idx):
            assert not self.training

    class Keeps(Model):

        def train(self, mode=True):
            super().train(mode)
            self.layer.eval()
            return self

    class Validates(Model):

        def on_validation_model_train(self):
            self.train()
            self.layer.eval()

    model = {"plain": Model, "keeps": Keeps, "validates": Validates}[kind]()
    pl.Trainer(**QUIET, val_check_interval=3).fit(model)
    return seen


@pytest.mark.parametrize("kind, expected, lines", [
    ("plain", [True, True, True, True], 2), ("keeps", [False] * 4, 0), ("validates", [True, True, True, False], 1)])
def test_modules_in_eval_mode(package, kind, expected, lines):
    found, said = run_old(modes, package, kind)
    assert found == expected and len(said) == lines, said
    if kind == "plain":
        assert said == [
            "Model has modules in eval mode, and Lightning 1 set all to train mode before it trained: write model.train() "
            "before trainer.fit(model)",
            "Model has modules in eval mode, and Lightning 1 set all to train mode after a validation: write def "
            "on_validation_model_train(self), which calls self.train()"
        ]


def wraps_in_vain(pl, strategy, stage):

    class Owner(model_of(pl)):

        def configure_ddp(self, model, device_ids):
            raise AssertionError("not reached")

        def test_step(self, batch, batch_idx):
            pass

    trainer = pl.Trainer(**QUIET, strategy=strategy, devices=1)
    if stage == "test":
        return trainer.test(Owner(), verbose=False)
    with pytest.raises(Exception) as caught:
        trainer.fit(Owner())
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("strategy, what", [("tutti:decentralized", "weights"), ("tutti:qadam", "momentum")])
def test_a_ddp_class_where_no_gradients_are_exchanged(package, strategy, what):
    text, lines = run_old(wraps_in_vain, package, strategy, "fit")
    assert text.startswith("ValueError: rank 0: Owner.configure_ddp would not be called: "), text
    assert f'{strategy.partition(":")[2]}, which exchanges {what}' in text and 'strategy="tutti:bytegrad"' in text
    assert not any("configure_ddp" in line for line in lines), lines
    assert run_old(wraps_in_vain, package, strategy, "test")[0] == [{}]  # which wraps nothing


def refused(pl, kind):

    class Several(model_of(pl)):

        def training_step(self, batch, batch_idx, optimizer_idx):
            raise AssertionError("not reached")

    class Truncated(model_of(pl)):

        def training_step(self, batch, batch_idx, hiddens):
            raise AssertionError("not reached")

    class Returns(model_of(pl)):

        def training_epoch_end(self, outputs):
            return {"loss": 1}

    with pytest.raises(Exception) as caught:
        pl.Trainer(**QUIET).fit({"several": Several, "truncated": Truncated, "returns": Returns}[kind]())
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize("kind, words", [
    ("several", ["TypeError: Several.training_step has the argument optimizer_idx", "automatic_optimization = False"]),
    ("truncated", ["TypeError: Truncated", "split the batch in training_step"]),
    ("returns", ["ValueError: Returns.training_epoch_end returned a dict", "self.log"]),
])
def test_refused(package, kind, words):
    text, _ = run_old(refused, package, kind)
    assert all(word in text for word in words), text
