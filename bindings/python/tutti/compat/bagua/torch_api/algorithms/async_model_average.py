"""What old scripts import as ``bagua.torch_api.algorithms.async_model_average``."""

import torch

from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm
from tutti.compat.bagua.torch_api.with_bagua import wrapper_of


class AsyncModelAverageAlgorithm(Algorithm):
    """Weights are averaged in the background; today: the strategy ``async``."""

    def __init__(self, peer_selection_mode: str = "all", sync_interval_ms: int = 500, warmup_steps: int = 0) -> None:
        super().__init__("async", peer_selection_mode=peer_selection_mode, sync_interval_ms=sync_interval_ms,
                         warmup_steps=warmup_steps)

    def abort(self, bagua_module: torch.nn.Module) -> None:
        """Pauses the rounds of a model that ``with_bagua`` made; today: ``model.pause()``. On all ranks."""
        wrapper_of(bagua_module).pause()

    def resume(self, bagua_module: torch.nn.Module) -> None:
        """Ends ``abort``; today: ``model.resume()``. On all ranks."""
        wrapper_of(bagua_module).resume()
