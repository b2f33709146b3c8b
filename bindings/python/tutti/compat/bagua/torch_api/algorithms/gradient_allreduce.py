"""What old scripts import as ``bagua.torch_api.algorithms.gradient_allreduce``."""

from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm


class GradientAllReduceAlgorithm(Algorithm):
    """Gradients are averaged exactly; today: the strategy ``gradient_allreduce``."""

    def __init__(self, hierarchical: bool = False, average: bool = True) -> None:
        super().__init__("gradient_allreduce", hierarchical=hierarchical, average=average)
