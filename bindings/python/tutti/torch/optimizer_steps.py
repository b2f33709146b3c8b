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


def only_makes_state() -> bool:
    """For hooks of a step: whether the step is none of the training, and changes no weight.

    torch.distributed.checkpoint makes such a step, with a learning rate and gradients of zero, where an optimizer has no
    state yet.
    """
    maker = getattr(sys.modules.get("torch.distributed.checkpoint.state_dict"), "_init_optim_state", None)
    if maker is None:
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not maker.__code__:
        frame = frame.f_back
    return frame is not None
