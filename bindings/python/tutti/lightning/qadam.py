"""The optimizer of ``qadam`` with the signature of Bagua."""

from collections.abc import Iterable
from typing import Any

import torch

import tutti.torch


def check_clipping(optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError where the gradients of ``optimizer``, which are to be clipped now, are momentum."""
    if isinstance(optimizer, tutti.torch.QAdam) and optimizer.frozen:
        raise ValueError("qadam: after the warm-up the gradients are momentum, and all later steps would go on from what is "
                         "clipped: clip while optimizer.frozen is False only")


class QAdamOptimizer(tutti.torch.QAdam):
    """:class:`tutti.torch.QAdam` that knows the number of warm-up steps, for ``configure_optimizers``.

        def configure_optimizers(self):
            return QAdamOptimizer(self.parameters(), lr=0.05, warmup_steps=100)

    Trainer, Fabric and :class:`tutti.torch.DistributedDataParallel` read ``warmup_steps`` where the strategy ``qadam``
    does not say a number itself; the other arguments are those of QAdam. From Bagua's ``QAdamOptimizer``.
    """

    _how_to_use = ('train by Trainer(strategy="tutti:qadam"); without a Trainer pass it to '
                   'tutti.torch.DistributedDataParallel(module, optimizer, "qadam") first')

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        warmup_steps: int = 100,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if warmup_steps < 1:
            raise ValueError(f"QAdamOptimizer: warmup_steps={warmup_steps}; it is a number of steps from 1 on")
        super().__init__(params, lr, betas, eps, weight_decay)
        self.warmup_steps = warmup_steps

    def __getstate__(self) -> dict[str, Any]:
        """What copies have, which know the number of warm-up steps, too."""
        return {**super().__getstate__(), "warmup_steps": self.warmup_steps}
