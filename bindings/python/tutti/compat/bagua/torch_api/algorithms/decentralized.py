"""What old scripts import as ``bagua.torch_api.algorithms.decentralized``."""

from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm


class DecentralizedAlgorithm(Algorithm):
    """Ranks mix their weights with those of peers; today: the strategy ``decentralized``."""

    def __init__(self,
                 hierarchical: bool = True,
                 peer_selection_mode: str = "all",
                 communication_interval: int = 1) -> None:
        super().__init__("decentralized", hierarchical=hierarchical, peer_selection_mode=peer_selection_mode,
                         communication_interval=communication_interval)


class LowPrecisionDecentralizedAlgorithm(Algorithm):
    """Ranks tell two neighbours in 8 bits what changed in the weights; today: ``low_precision_decentralized``."""

    def __init__(self, hierarchical: bool = True, communication_interval: int = 1) -> None:
        super().__init__("low_precision_decentralized", hierarchical=hierarchical,
                         communication_interval=communication_interval)
