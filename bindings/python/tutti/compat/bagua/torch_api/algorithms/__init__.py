"""Bagua's algorithms: each object carries the name of one of Tutti's strategies, with Bagua's options.

    algorithm = bagua.torch_api.algorithms.bytegrad.ByteGradAlgorithm()
    model = tutti.torch.DistributedDataParallel(module, optimizer, algorithm.strategy)
"""

from tutti.compat import missing_names
from tutti.compat.bagua.torch_api.algorithms import (async_model_average, bytegrad, decentralized, gradient_allreduce,
                                                     q_adam)

__all__ = ["async_model_average", "bytegrad", "decentralized", "gradient_allreduce", "q_adam"]

__getattr__ = missing_names.getattr_of("bagua.torch_api.algorithms")
