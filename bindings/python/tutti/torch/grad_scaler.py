"""A gradient scaler whose ranks skip the same steps."""

from typing import Any

import torch

from tutti.torch.distributed_data_parallel import DistributedDataParallel


class GradScaler(torch.amp.GradScaler):
    """torch's ``GradScaler`` for a model whose gradients may overflow on one rank only.

        scaler = tutti.torch.GradScaler(model)

    ``model`` is a :class:`tutti.torch.DistributedDataParallel`, or a module that ``with_bagua`` was called on before.
    All ranks skip a step when the gradients of any rank overflow, so their scales and weights stay in step; in a
    skipped step the strategy exchanges no weights. (An optimizer made with ``fused=True`` skips by itself: such a step
    counts, and the strategy exchanges weights as always.) What a codec holds back follows the scale. All ranks call ``scale``,
    ``unscale_`` and ``step`` in the same order. Options are those of ``torch.amp.GradScaler``.
    """

    def __init__(self, model: torch.nn.Module, **options: Any) -> None:
        self._model = model
        self._wrapper()
        super().__init__(next((parameter.device.type for parameter in model.parameters()), "cpu"), **options)

    def _wrapper(self) -> DistributedDataParallel:
        """What exchanges for the model now: another one after each with_bagua."""
        of_bagua = getattr(self._model, "bagua_ddp", None)
        wrapper = self._model if of_bagua is None else of_bagua
        if not isinstance(wrapper, DistributedDataParallel):
            raise TypeError(f"GradScaler is for tutti.torch.DistributedDataParallel, or for a module after with_bagua, not "
                            f"{type(self._model).__name__}: beside tutti.torch.register use torch.amp.GradScaler, and tell "
                            "the exchange with set_loss_scale")
        return wrapper

    def scale(self, outputs: Any) -> Any:
        if self.is_enabled():
            self._wrapper().set_loss_scale(self.get_scale())
        return super().scale(outputs)

    def _unscale_grads_(self, *arguments: Any) -> dict[torch.device, torch.Tensor]:
        # torch looks for overflows in this function alone.
        found = super()._unscale_grads_(*arguments)
        overflow = self._wrapper().agree_on_overflow(any(bool(on_device.item()) for on_device in found.values()))
        if overflow:
            for on_device in found.values():
                on_device.fill_(1)
        return found
