"""SIGTERM, and Slurm's signal before a job is requeued, between two steps of training.

Lightning acts inside the handler of a signal, wherever the rank is at that moment: its ranks then make their collectives
in different orders. Here the handler takes a note, and all ranks act at the same place.
"""

import importlib
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

_IMPATIENCE_S = 2  # a second SIGTERM after that time ends the process at once


class AgreedSignals:
    """The signals of one ``fit`` on several ranks.

    ``agree`` returns, of two flags, those that are set on any rank; or this rank's own.
    """

    def __init__(self, package: str, trainer: Any, agree: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._exception = importlib.import_module(f"{package}.utilities.exceptions").SIGTERMException
        self._trainer = trainer
        self._agree = agree
        self._terminates, self._requeues = False, False
        self._noted_at = 0.0
        self._connector = connector = trainer._signal_connector
        self._requeue = connector._slurm_sigusr_handler_fn
        # Lightning registers these as handlers, and calls the last one before each batch.
        connector._sigterm_notifier_fn = self._note_sigterm
        connector._slurm_sigusr_handler_fn = self._note_requeue
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = self.act

    def act(self) -> None:
        """Does what signals asked for that any rank has got since the last call. All ranks call it together."""
        terminates, requeues = self._agree(torch.tensor([int(self._terminates), int(self._requeues)])).tolist()
        # A signal that came while the ranks agreed stays noted until the next call, unless its like is acted on now.
        if requeues:
            self._requeues = False
            self._requeue(signal.SIGUSR1, None)
        if terminates:
            told_to_end, self._terminates = self._terminates, False  # told perhaps while the ranks agreed
            self._connector.received_sigterm = True
            # The exception ends a process with exit code 0. To the launcher of a rank that was not told to end, 0 would
            # mean that the training is complete: an agent of torchrun would leave the job and not restart the rank.
            raise self._exception() if told_to_end else self._exception(128 + signal.SIGTERM)

    def remove(self) -> None:
        """Leaves signals to Lightning again, and tells it of a SIGTERM that nobody has acted on."""
        vars(self._connector).pop("_sigterm_notifier_fn", None)
        vars(self._connector).pop("_slurm_sigusr_handler_fn", None)
        vars(self._trainer.fit_loop.epoch_loop).pop("_broadcast_sigterm_tensor", None)
        self._connector.received_sigterm |= self._terminates

    def _note_sigterm(self, signum: int, _frame: Any) -> None:
        if self._terminates:
            # Launchers may send the signal twice at once; later it means that the training takes too long to end.
            if time.monotonic() - self._noted_at > _IMPATIENCE_S:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            return
        self._terminates, self._noted_at = True, time.monotonic()
        if self._trainer.strategy.launcher is not None:
            self._trainer.strategy.launcher.kill(signum)  # processes that Lightning has started hear of it, too

    def _note_requeue(self, _signum: int, _frame: Any) -> None:
        self._requeues = True
