"""The frames in which optimizers of torch make their steps."""

import sys

import torch

# torch wraps `step` of every class by this function, which runs the hooks.
_WITH_HOOKS = torch.optim.Optimizer.profile_hook_step(lambda optimizer: None).__code__


def is_inside_another_step(optimizer: torch.optim.Optimizer) -> bool:
    """For hooks of a step: whether the step is a part of one that ``optimizer`` makes already, and that has hooks, too.

    Such a step is ``super().step()`` of a class whose base class has been made by itself, too.
    """
    steps = 0
    frame = sys._getframe(1)
    while frame is not None and steps < 2:
        if frame.f_code is _WITH_HOOKS and frame.f_locals.get("self") is optimizer:
            steps += 1
        frame = frame.f_back
    return steps == 2
