"""Hooks of Lightning 1 may call the base class by super(), with the arguments of then and with those of today."""

import inspect

from lightning1 import QUIET, in_both, model_of, run_old
from tutti.compat.lightning1 import hook_signatures

pytestmark = in_both


def callbacks(pl):
    """Lightning's callbacks, each of which may be the base class of a script's."""
    listed = [one for one in vars(pl.callbacks).values() if isinstance(one, type)]
    return [*listed, pl.callbacks.progress.progress_bar.ProgressBar]


def refused_calls(pl):
    """What the classes refuse of the table, (class, hook, arguments), and which hooks they have."""
    refused, found = [], set()
    for owner in (pl.LightningModule, pl.LightningDataModule, *callbacks(pl)):
        leading = 2 if issubclass(owner, pl.Callback) else 0
        for row in hook_signatures.HOOKS:
            if not hasattr(owner, row.name):
                continue
            found.add((owner.__name__, row.name))
            signature = inspect.signature(getattr(owner, row.name), follow_wrapped=False)
            for names in row.today, row.old:
                try:
                    signature.bind("self", *range(leading), *names)
                except TypeError:
                    refused.append((owner.__name__, row.name, names))
    return refused, found


def test_every_hook_of_every_class_takes_either_order(package):
    refused, found = run_old(refused_calls, package)[0]
    assert refused == []
    assert {name for _, name in found} == {row.name for row in hook_signatures.HOOKS}
    assert {("TQDMProgressBar", "on_train_batch_end"), ("LightningDataModule", "transfer_batch_to_device")} <= found


def scripts_by_super(pl):
    called = []

    class Model(model_of(pl)):

        def transfer_batch_to_device(self, batch, device):
            called.append("transfer")
            return super().transfer_batch_to_device(batch, device)

        def on_train_epoch_end(self, outputs):
            called.append(f"model: {len(outputs)} outputs")
            super().on_train_epoch_end(outputs)

        def on_epoch_start(self):
            super().on_epoch_start()

        def training_step_end(self, outputs):
            return 2 * super().training_step_end(outputs)

        def training_epoch_end(self, outputs):
            super().training_epoch_end(outputs)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            return batch_idx

        def validation_step_end(self, *args, **kwargs):
            return super().validation_step_end(*args, **kwargs)

        def validation_epoch_end(self, outputs):
            called.append(outputs)
            super().validation_epoch_end(outputs)

        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_idx, optimizer_closure, **kwargs):
            super().optimizer_step(epoch=epoch, batch_idx=batch_idx, optimizer=optimizer, optimizer_idx=optimizer_idx,
                                   optimizer_closure=optimizer_closure)

    class Bar(pl.callbacks.TQDMProgressBar):

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx):
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx, dataloader_idx)
            called.append(f"bar: {self.train_progress_bar.n}")

        def on_train_epoch_end(self, trainer, pl_module, outputs):
            super().on_train_epoch_end(trainer, pl_module, outputs)

        def on_epoch_end(self, trainer, pl_module):
            super().on_epoch_end(trainer, pl_module)

    class Callback(pl.Callback):

        def on_before_optimizer_step(self, trainer, pl_module, optimizer, opt_idx):
            called.append(f"optimizer {opt_idx}")
            super().on_before_optimizer_step(trainer, pl_module, optimizer, opt_idx)

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx):
            super().on_train_batch_start(trainer=trainer, pl_module=pl_module, batch=batch, batch_idx=batch_idx,
                                         dataloader_idx=dataloader_idx)

    class Data(pl.LightningDataModule):

        def train_dataloader(self):
            return Model().train_dataloader()

        val_dataloader = train_dataloader

        def transfer_batch_to_device(self, batch, device):
            called.append("data module's transfer")
            return super().transfer_batch_to_device(batch, device)

    options = QUIET | {"enable_progress_bar": True, "limit_train_batches": 1, "limit_val_batches": 1,
                       "num_sanity_val_steps": 0}
    model = Model()
    before = model.layer.bias.item()
    pl.Trainer(**options, callbacks=[Bar(), Callback()]).fit(model)
    moved = before - model.layer.bias.item()
    first, called[:] = list(called), []
    pl.Trainer(**options, callbacks=[Callback()]).fit(model, datamodule=Data())
    return first, round(moved, 4), called


def test_scripts_that_call_super(package):
    first, moved, second = run_old(scripts_by_super, package)[0]
    assert first == ["transfer", "optimizer 0", "bar: 1", "transfer", [0], "model: 1 outputs"]
    assert moved == 2 * 2 * 0.125  # the loss of 2 rows, doubled by training_step_end
    assert second == ["data module's transfer", "optimizer 0", "data module's transfer", [0], "model: 1 outputs"]


def bases_alone(pl):
    """A model, a callback and a data module without hooks of Lightning 1."""
    class Model(model_of(pl)):

        def validation_step(self, batch, batch_idx):
            pass

    class Data(pl.LightningDataModule):
        train_dataloader = val_dataloader = lambda self: Model().train_dataloader()

    trainer = pl.Trainer(**QUIET, callbacks=[pl.Callback()])
    trainer.fit(Model(), datamodule=Data())


def test_what_super_finds_is_no_hook_of_the_script(package):
    assert run_old(bases_alone, package) == (None, [])
