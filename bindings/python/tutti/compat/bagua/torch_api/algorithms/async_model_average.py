"""What old scripts import as ``bagua.torch_api.algorithms.async_model_average``."""

from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm


class AsyncModelAverageAlgorithm(Algorithm):
    """Weights are averaged in the background; today: the strategy ``async``."""

    def __init__(self, peer_selection_mode: str = "all", sync_interval_ms: int = 500, warmup_steps: int = 0) -> None:
        super().__init__("async", peer_selection_mode=peer_selection_mode, sync_interval_ms=sync_interval_ms,
                         warmup_steps=warmup_steps)
