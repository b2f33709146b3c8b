"""What old scripts import as ``horovod.torch``, over the backend ``tutti`` of ``torch.distributed``.

    import horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Calls are matched by their order, equal on all ranks; the argument ``name`` is accepted and has no effect.
"""

from tutti.compat import missing_names
from tutti.compat.horovod.torch.allreduce import (Adasum, Average, Handle, Max, Min, Product, Sum, allreduce,
                                                  allreduce_, allreduce_async, allreduce_async_, poll, synchronize)
from tutti.compat.horovod.torch.collectives import allgather, alltoall, broadcast, broadcast_
from tutti.compat.horovod.torch.compression import Compression
from tutti.compat.horovod.torch.objects import (allgather_object, broadcast_object, broadcast_optimizer_state,
                                                broadcast_parameters)
from tutti.compat.horovod.torch.optimizer import DistributedOptimizer
from tutti.compat.horovod.torch.world import (barrier, cross_rank, cross_size, init, is_initialized, join, local_rank,
                                              local_size, rank, shutdown, size)

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "Handle", "Max", "Min", "Product", "Sum", "allgather",
    "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "barrier",
    "broadcast", "broadcast_", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "cross_rank",
    "cross_size", "init", "is_initialized", "join", "local_rank", "local_size", "poll", "rank", "shutdown", "size",
    "synchronize"
]

__getattr__ = missing_names.getattr_of("horovod.torch")
