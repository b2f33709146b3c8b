"""What old scripts import as ``bagua.torch_api.algorithms.q_adam``."""

from typing import Any

from tutti.compat import missing_names
from tutti.compat.bagua.torch_api.algorithms.strategy import Algorithm


class QAdamAlgorithm(Algorithm):
    """Adam's momentum is averaged in 8 bits per element after a warm-up; today: the strategy ``qadam``."""

    def __init__(self, q_adam_optimizer: Any, hierarchical: bool = True) -> None:
        warmup_steps = getattr(q_adam_optimizer, "warmup_steps", None)
        if warmup_steps is None:
            raise TypeError(f"QAdamAlgorithm: expected a QAdamOptimizer as q_adam_optimizer, and got one of "
                            f"type {type(q_adam_optimizer).__name__}")
        super().__init__("qadam", warmup_steps=warmup_steps, hierarchical=hierarchical)


_missing = missing_names.getattr_of("bagua.torch_api.algorithms.q_adam")


def __getattr__(name: str) -> Any:
    """Imports QAdamOptimizer when it is first used, since it brings Lightning along."""
    if name != "QAdamOptimizer":
        return _missing(name)
    from tutti.lightning import QAdamOptimizer

    return QAdamOptimizer
