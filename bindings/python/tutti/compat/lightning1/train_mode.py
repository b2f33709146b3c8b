"""Train mode as in Lightning 1, which set every module to it before the first step and after each validation.

Lightning 2.2 and newer leave a module in eval mode that the script has set to it, or a library has loaded in it.
"""

import functools
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once


def _set(trainer: Any, when: str, today: str) -> None:
    model = trainer.lightning_module
    in_eval_mode = [one for one in model.modules() if not one.training]
    trainer.model.train()
    if any(one.training for one in in_eval_mode):  # the model's own train() may leave some of them as they are
        say_once(f"{type(model).__name__} has modules in eval mode, and Lightning 1 set all to train mode {when}: write "
                 f"{today}")


def patch(package: ModuleType) -> None:
    """Lets ``fit`` of ``package`` train in train mode."""
    fit_loop, evaluation_loop = package.loops.fit_loop._FitLoop, package.loops.evaluation_loop._EvaluationLoop
    run, end_evaluation = fit_loop.run, evaluation_loop._on_evaluation_model_train

    @functools.wraps(run)
    def run_in_train_mode(self: Any) -> None:
        _set(self.trainer, "before it trained", "model.train() before trainer.fit(model)")
        run(self)

    @functools.wraps(end_evaluation)
    def end_evaluation_in_train_mode(self: Any) -> None:
        end_evaluation(self)
        trainer = self.trainer
        hook = type(trainer.lightning_module).on_validation_model_train
        in_fit = trainer.state.fn == "fit" and trainer.validating  # the sanity check comes before run()
        if in_fit and hook is package.LightningModule.on_validation_model_train:
            _set(trainer, "after a validation", "def on_validation_model_train(self), which calls self.train()")

    fit_loop.run, evaluation_loop._on_evaluation_model_train = run_in_train_mode, end_evaluation_in_train_mode
