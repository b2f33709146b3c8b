"""States in checkpoints as in Lightning 1: of callbacks and data modules; hyperparameters that are assigned."""

import argparse
import pathlib

import pytest
import torch

from lightning1 import QUIET, in_both, model_of, run_old

pytestmark = in_both


def states_of_callbacks(pl, folder, saved_by):
    loaded = []

    class Returns(pl.Callback):

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            checkpoint["mine"] = 1
            return {"number": 7}

        def on_load_checkpoint(self, trainer, pl_module, callback_state):
            loaded.append(callback_state)

    class Oldest(pl.Callback):

        def on_save_checkpoint(self, trainer, pl_module):
            return {"number": 8}

        def on_load_checkpoint(self, checkpointed_state):
            loaded.append(checkpointed_state)

    class Todays(pl.Callback):

        def on_load_checkpoint(self, trainer, pl_module, checkpoint):
            loaded.append(checkpoint["mine"])

    path = f"{folder}/saved.ckpt"
    saves = pl.callbacks.LambdaCallback(on_train_end=lambda trainer, _: trainer.save_checkpoint(path))
    pl.Trainer(**QUIET, callbacks=[Returns(), Oldest(), saves]).fit(model_of(pl)())
    if saved_by == "1.4":  # which has the classes as keys
        saved = torch.load(path, weights_only=False)
        saved["callbacks"] = {type(one): saved["callbacks"][one.state_key] for one in (Returns(), Oldest())}
        for kind in Returns, Oldest:  # pickle finds classes by their names
            kind.__qualname__ = kind.__name__
            globals()[kind.__name__] = kind
        del saved["loops"]
        torch.save({**saved, "pytorch-lightning_version": "1.4.0"}, path)
    again = pl.Trainer(**QUIET | {"max_epochs": 2}, callbacks=[Returns(), Oldest(), Todays()])
    again.fit(model_of(pl)(), ckpt_path=path, weights_only=False)
    return loaded


@pytest.mark.parametrize("saved_by", ["today", "1.4"])
def test_states_of_callbacks(package, tmp_path, saved_by):
    loaded, lines = run_old(states_of_callbacks, package, tmp_path, saved_by)
    assert loaded == [{"number": 7}, {"number": 8}, 1]
    assert "Returns.on_save_checkpoint returns a state, as in Lightning 1: return it from def state_dict(self)" in lines
    assert ("Oldest.on_load_checkpoint(checkpointed_state) is of Lightning 1: write def load_state_dict(self, "
            "state_dict)") in lines


def states_outside_of_a_run(pl, folder, when):
    path = f"{folder}/saved.ckpt"

    class Returns(pl.Callback):

        def on_save_checkpoint(self, trainer, pl_module, checkpoint):
            return {"number": 7}

    class Oldest(pl.Callback):

        def on_save_checkpoint(self, trainer, pl_module):
            return {"number": 8}

    class Todays(pl.Callback):

        def on_save_checkpoint(self, *arguments):
            arguments[2]["mine"] = 1

    class Saves(pl.Callback):

        def on_exception(self, trainer, pl_module, exception):
            trainer.save_checkpoint(path)

    class Fails(model_of(pl)):

        def on_train_end(self):
            if when == "in on_exception":
                raise ValueError("on purpose")

    callbacks = [Returns(), Oldest(), Todays(), Saves()]
    trainer = pl.Trainer(**QUIET, callbacks=callbacks)
    if when == "in on_exception":
        with pytest.raises(ValueError, match="on purpose"):
            trainer.fit(Fails())
    else:
        trainer.fit(Fails())
        trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=False)
    leftovers = [name for one in callbacks for name in vars(one) if name.startswith("on_")]
    return sorted(state["number"] for state in saved["callbacks"].values()), saved["mine"], leftovers


@pytest.mark.parametrize("when", ["after fit", "in on_exception"])
def test_states_are_saved_outside_of_a_run(package, tmp_path, when):
    (states, mine, leftovers), lines = run_old(states_outside_of_a_run, package, tmp_path, when)
    assert states == [7, 8] and mine == 1 and leftovers == []
    assert "Oldest.on_save_checkpoint returns a state, as in Lightning 1: return it from def state_dict(self)" in lines


def states_of_a_data_module(pl, folder):
    called = []

    class Model(model_of(pl)):

        def on_load_checkpoint(self, checkpoint):
            called.append(f"model: {checkpoint['shuffles']}")

    class Data(pl.LightningDataModule):
        shuffles = 0

        def train_dataloader(self):
            self.shuffles += 1
            return Model().train_dataloader()

        def on_save_checkpoint(self, checkpoint):
            super().on_save_checkpoint(checkpoint)
            checkpoint["shuffles"] = self.shuffles

        def on_load_checkpoint(self, checkpoint):
            self.shuffles = checkpoint["shuffles"]
            called.append(f"data module: {self.shuffles}")

    trainer = pl.Trainer(**QUIET)
    trainer.fit(Model(), datamodule=Data())
    trainer.save_checkpoint(f"{folder}/saved.ckpt")
    data = Data()
    pl.Trainer(**QUIET | {"max_epochs": 2}).fit(Model(), datamodule=data, ckpt_path=f"{folder}/saved.ckpt")
    return called, data.shuffles


def test_states_of_a_data_module(package, tmp_path):
    (called, shuffles), lines = run_old(states_of_a_data_module, package, tmp_path)
    assert called == ["data module: 1", "model: 1"] and shuffles == 2
    assert lines == ["Data.on_save_checkpoint is of Lightning 1: write def state_dict(self)",
                     "Data.on_load_checkpoint is of Lightning 1: write def load_state_dict(self, state_dict)"]


def assigned_hparams(pl, folder):

    class Model(model_of(pl)):

        def __init__(self, args, rates=None):
            super().__init__()
            args = args if isinstance(args, argparse.Namespace) else argparse.Namespace(**args)
            self.hparams = args

    class Data(pl.LightningDataModule):

        def __init__(self, hparams):
            super().__init__()
            self.hparams = hparams

        def train_dataloader(self):
            return model_of(pl)().train_dataloader()

    logger = pl.loggers.CSVLogger(folder)
    trainer = pl.Trainer(**QUIET | {"logger": logger})
    trainer.fit(Model({"lr": 0.5}, torch.ones(2).numpy()), datamodule=Data({"rows": 2}))
    trainer.save_checkpoint(f"{folder}/saved.ckpt")
    model = Model.load_from_checkpoint(f"{folder}/saved.ckpt")
    data = Data.load_from_checkpoint(f"{folder}/saved.ckpt")
    written = pathlib.Path(logger.log_dir, "hparams.yaml").read_text()
    return dict(model.hparams), dict(model.hparams_initial), dict(data.hparams), written


def test_hparams_that_are_assigned_are_logged_and_loaded(package, tmp_path):
    found, lines = run_old(assigned_hparams, package, tmp_path)
    assert found == ({"lr": 0.5}, {"lr": 0.5}, {"rows": 2}, "lr: 0.5\nrows: 2\n")
    for name in "Model", "Data":
        assert f"{name}: self.hparams = … is of Lightning 1: write self.save_hyperparameters(…)" in lines
