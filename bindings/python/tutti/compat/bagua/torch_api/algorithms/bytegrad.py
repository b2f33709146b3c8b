"""What old scripts import as ``bagua.torch_api.algorithms.bytegrad``."""

from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm


class ByteGradAlgorithm(Algorithm):
    """Gradients are averaged in 8 bits per element; today: the strategy ``bytegrad``."""

    def __init__(self, hierarchical: bool = True, average: bool = True) -> None:
        super().__init__("bytegrad", hierarchical=hierarchical, average=average)
