"""Runs old code for Lightning 1 in a forked process, where tutti.compat.lightning1 is active."""

import importlib
import logging
import multiprocessing
import traceback
import warnings

import pytest

pytest.importorskip("lightning", reason="Lightning is not installed")
pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")

import lightning.pytorch  # here once for all forked processes
import pytorch_lightning
import torch

PACKAGES = [lightning.pytorch, pytorch_lightning]
in_both = pytest.mark.parametrize("package", [one.__name__ for one in PACKAGES])

# What every Trainer of these tests is given, in the words of today: no files and no output.
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
         "accelerator": "cpu", "max_epochs": 1}


def lines_of(caught):
    """The texts of the deprecation lines among caught warnings."""
    return [str(one.message) for one in caught if "Lightning 1" in str(one.message)]


def _run(function, package, arguments, results):
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    try:
        from tutti.compat import lightning1

        lightning1.activate()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value = function(importlib.import_module(package), *arguments)
        results.put((value, lines_of(caught), None))
    except BaseException:
        results.put((None, [], traceback.format_exc()))


def run_old(function, package, *arguments):
    """Returns what `function(package, *arguments)` returned in the process, and the lines that it showed."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_run, args=(function, package, arguments, results), name="MainProcess")
    process.start()
    try:
        value, lines, error = results.get(timeout=90)
    finally:
        process.join(10)
        process.kill()
    assert error is None, error
    return value, lines


def model_of(package):
    """A class of models with one linear layer and 4 batches of 2 rows of ones for each purpose."""

    class Model(package.LightningModule):

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def loss(self, batch):
            return self.layer(batch).sum()

        def training_step(self, batch, batch_idx):
            return self.loss(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.125)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=2)

        val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    return Model
