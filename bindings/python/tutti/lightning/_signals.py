"""SIGTERM, and Slurm's signal before a job is requeued, between two steps of training.

Lightning acts inside the handler of a signal, wherever the rank is at that moment: its ranks then make their collectives
in different orders. Here the handler takes a note, and all ranks act before the same batch.
"""

import importlib
import signal
from collections.abc import Callable
from typing import Any

import torch

_NOTHING, _TERM, _REQUEUE = 0, 1, 2


class AgreedSignals:
    """The signals of one ``fit``. ``agree`` returns the largest value of all ranks, or this rank's own."""

    def __init__(self, package: str, trainer: Any, agree: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._exception = importlib.import_module(f"{package}.utilities.exceptions").SIGTERMException
        self._trainer = trainer
        self._agree = agree
        self._noted = _NOTHING
        self._connector = connector = trainer._signal_connector
        self._requeue = connector._slurm_sigusr_handler_fn
        # Lightning registers these as handlers, and calls the last one before each batch.
        connector._sigterm_notifier_fn = self._note_sigterm
        connector._slurm_sigusr_handler_fn = self._note_requeue
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = self._act

    def remove(self) -> None:
        """Leaves signals to Lightning again."""
        vars(self._connector).pop("_sigterm_notifier_fn", None)
        vars(self._connector).pop("_slurm_sigusr_handler_fn", None)
        vars(self._trainer.fit_loop.epoch_loop).pop("_broadcast_sigterm_tensor", None)

    def _note_sigterm(self, signum: int, _frame: Any) -> None:
        launcher = self._trainer.strategy.launcher
        if self._noted < _TERM and launcher is not None:
            launcher.kill(signum)  # processes that Lightning has started hear of it, too
        self._noted = max(self._noted, _TERM)

    def _note_requeue(self, _signum: int, _frame: Any) -> None:
        self._noted = _REQUEUE

    def _act(self) -> None:
        agreed = int(self._agree(torch.tensor(self._noted)))
        self._noted = _NOTHING
        if agreed == _REQUEUE:
            self._requeue(signal.SIGUSR1, None)
        elif agreed == _TERM:
            self._connector.received_sigterm = True
            raise self._exception
