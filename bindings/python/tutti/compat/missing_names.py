"""Names of Bagua and Horovod that there are no more, and what to use today."""

from collections.abc import Callable
from typing import NoReturn

_EXPERTS = "Tutti has no mixture of experts"
_GROUPS = "with_bagua takes groups of torch.distributed as they are, in place of from_torch_group(group)"
_RUN = "use `python -m tutti.compat horovodrun`, or torchrun"
_SUBGROUPS = "use torch.distributed.new_group(ranks) and the functions of torch.distributed"


def _each(package: str, names: str, instead: str) -> dict[str, str]:
    return {f"{package}.{name}": instead for name in names.split()}


INSTEAD = {
    **_each(
        "bagua.torch_api",
        "allgather allgather_inplace allreduce allreduce_inplace alltoall alltoall_inplace broadcast gather "
        "gather_inplace get_backend recv reduce reduce_inplace reduce_scatter reduce_scatter_inplace scatter "
        "scatter_inplace send", "use the function of torch.distributed with the backend tutti"),
    **_each("bagua.torch_api", "BaguaModule data_parallel ddp_compatible distributed",
            "use model.with_bagua(optimizers, algorithm), or tutti.torch.DistributedDataParallel"),
    "bagua.torch_api.barrier": "use torch.distributed.barrier()",
    "bagua.torch_api.communication": "use the function of torch.distributed with the backend tutti, and "
                                     f"bagua.torch_api.init_process_group(); {_GROUPS}",
    "bagua.torch_api.from_torch_group": _GROUPS,
    "bagua.torch_api.is_initialized": "use torch.distributed.is_initialized()",
    "bagua.torch_api.new_group": "use torch.distributed.new_group(ranks), which with_bagua takes",
    "bagua.torch_api.BaguaTensor": "tensors of torch are exchanged as they are",
    "bagua.torch_api.ReduceOp": "use torch.distributed.ReduceOp",
    **_each("bagua.torch_api.algorithms", "Algorithm AlgorithmImpl GlobalAlgorithmRegistry base",
            "use bytegrad.ByteGradAlgorithm() of bagua.torch_api.algorithms, or another algorithm there"),
    "bagua.torch_api.checkpoint": "use torch.save and model.state_dict(), as docs/checkpoints.md says",
    "bagua.torch_api.contrib": "Tutti exchanges gradients and weights, and has no data loaders, caches or fused optimizers; "
                               "for SyncBatchNorm use tutti.torch.convert_sync_batchnorm(model)",
    "bagua.torch_api.model_parallel": _EXPERTS,
    "bagua.torch_api.moe": _EXPERTS,
    "bagua.distributed.run": "use torchrun",
    "bagua.script": "use `python -m tutti.compat baguarun`",
    "bagua.service": "Tutti needs no service beside the ranks",
    **_each("horovod", "keras mxnet tensorflow", "Tutti is for PyTorch: use horovod.torch"),
    "horovod.ray": 'use Ray Train with TorchConfig(backend="tutti")',
    "horovod.spark": "use TorchDistributor of Spark, and the backend tutti in the script",
    "horovod.run": _RUN,
    "horovod.runner": _RUN,
    "horovod.torch.elastic": "use torchrun --nnodes=MIN:MAX --max-restarts=N, which starts all ranks again",
    **_each("horovod.torch", "ProcessSet add_process_set global_process_set remove_process_set", _SUBGROUPS),
    **_each("horovod.torch", "allgather_async alltoall_async broadcast_async broadcast_async_",
            "use the function without async, or that of torch.distributed with async_op=True"),
    **_each("horovod.torch",
            "grouped_allgather grouped_allgather_async grouped_allreduce grouped_allreduce_ grouped_allreduce_async "
            "grouped_allreduce_async_", "use the function of torch.distributed for each tensor, with async_op=True"),
    "horovod.torch.reducescatter": "use torch.distributed.reduce_scatter_tensor",
    "horovod.torch.start_timeline": "use torch.profiler, which shows each call as tutti:all_reduce and so on",
    "horovod.torch.SyncBatchNorm": "use tutti.torch.convert_sync_batchnorm(model)",
    **_each(
        "horovod.torch",
        "ccl_built cuda_built ddl_built gloo_built gloo_enabled is_homogeneous mpi_built mpi_enabled "
        "mpi_threads_supported nccl_built rocm_built", "there is one backend, tutti, and nothing to ask"),
}


def refuse_import(name: str) -> None:
    """ImportError if ``name``, or a package that it is in, is a name that there is no more."""
    parts = name.split(".")
    for length in range(len(parts), 1, -1):
        if ".".join(parts[:length]) in INSTEAD:
            # No ModuleNotFoundError: `from package import name` would hide its text behind one of its own.
            raise ImportError(text_for(".".join(parts[:length])), name=name)


def text_for(name: str) -> str:
    """What to tell who uses ``name``, which Tutti does not have."""
    instead = INSTEAD.get(name, "docs/old_names.md says which old names there are, and what to write")
    return f"Tutti has no {name}: {instead}"


def getattr_of(module: str) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of the old module ``module``, whose AttributeError says what to use today."""

    def getattr_(name: str) -> NoReturn:
        raise AttributeError(text_for(f"{module}.{name}"), name=name)

    return getattr_
