"""Batch normalization over the batches of all ranks, also on the CPU, where torch's own SyncBatchNorm refuses to train."""

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``values``, one for each channel, in a shape that broadcasts to the batch ``like``."""
    return values.view(1, -1, *[1] * (like.dim() - 2))


class _Normalize(torch.autograd.Function):
    """Normalizes a batch by the mean and variance over all ranks (Ioffe and Szegedy, 2015, over the joint batch)."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float,
                group: dist.ProcessGroup | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        dims = [0, *range(2, batch.dim())]
        values = batch.to(torch.promote_types(batch.dtype, torch.float32))
        count = values.numel() // max(1, values.shape[1])
        # Each rank's count, mean and sum of squared deviations; joined, they lose no digits as sums of squares would.
        if count > 0:
            mean = values.mean(dims)
            mine = torch.cat([values.new_tensor([count]), mean, (values - _per_channel(mean, values)).square().sum(dims)])
        else:
            mine = values.new_zeros(1 + 2 * values.shape[1])
        every = mine.new_empty(dist.get_world_size(group), len(mine))
        dist.all_gather_into_tensor(every.view(-1), mine, group)
        counts, means, squares = every[:, :1], *every[:, 1:].chunk(2, 1)
        total = counts.sum()  # 0 where the batches of all ranks are empty
        mean = (counts * means).sum(0) / total.clamp(min=1)
        variance = (squares + counts * (means - mean).square()).sum(0) / total.clamp(min=1)
        scale = (variance + eps).rsqrt()
        normal = (values - _per_channel(mean, values)) * _per_channel(scale, values)
        output = normal if weight is None else normal * _per_channel(weight, values)
        if bias is not None:
            output = output + _per_channel(bias, values)
        ctx.save_for_backward(normal, scale, weight, total)
        ctx.group, ctx.has_bias = group, bias is not None
        ctx.mark_non_differentiable(mean, variance, total)
        return output.to(batch.dtype), mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        normal, scale, weight, total = ctx.saved_tensors
        dims = [0, *range(2, grad.dim())]
        upstream = grad.to(normal.dtype)
        sums = torch.stack([upstream.sum(dims), (upstream * normal).sum(dims)])
        grad_bias = sums[0].clone() if ctx.has_bias else None
        grad_weight = None if weight is None else sums[1].clone()
        dist.all_reduce(sums, group=ctx.group)
        means = sums / total.clamp(min=1)
        inner = upstream - _per_channel(means[0], grad) - normal * _per_channel(means[1], grad)
        factor = scale if weight is None else scale * weight
        return (inner * _per_channel(factor, grad)).to(grad.dtype), grad_weight, grad_bias, None, None


class _Synchronized:
    """The forward of a batch normalization whose statistics are those of all ranks."""

    process_group: dist.ProcessGroup | None = None

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if not self.training or not dist.is_initialized():
            return super().forward(batch)
        self._check_input_dim(batch)
        output, mean, variance, total = _Normalize.apply(batch, self.weight, self.bias, self.eps, self.process_group)
        if self.track_running_stats and total > 0:
            self._follow(mean, variance, float(total))
        return output

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, total: float) -> None:
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * (total / max(1.0, total - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


class SyncBatchNorm1d(_Synchronized, torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d`` over the batches of all ranks; see :func:`convert_sync_batchnorm`."""


class SyncBatchNorm2d(_Synchronized, torch.nn.BatchNorm2d):
    """``torch.nn.BatchNorm2d`` over the batches of all ranks; see :func:`convert_sync_batchnorm`."""


class SyncBatchNorm3d(_Synchronized, torch.nn.BatchNorm3d):
    """``torch.nn.BatchNorm3d`` over the batches of all ranks; see :func:`convert_sync_batchnorm`."""


_SYNCHRONIZED: dict[type[_BatchNorm], type[_BatchNorm]] = {
    torch.nn.BatchNorm1d: SyncBatchNorm1d, torch.nn.BatchNorm2d: SyncBatchNorm2d, torch.nn.BatchNorm3d: SyncBatchNorm3d
}
_PLAIN = {synchronized: plain for plain, synchronized in _SYNCHRONIZED.items()}


def convert_sync_batchnorm(
    module: torch.nn.Module, process_group: dist.ProcessGroup | None = None
) -> torch.nn.Module:
    """Lets every BatchNorm1d, 2d and 3d in ``module`` (derived classes excepted) normalize by the batches of all ranks of ``process_group``.

    ``torch.nn.SyncBatchNorm`` trains on GPUs alone; these layers train on the CPU, too, under any backend. They are changed
    in place, keep their parameters and buffers, and are as before in ``eval()`` and where there is no process group.
    All ranks call ``forward`` of the layers in the same order; batches may be of different sizes. A second derivative
    (``create_graph=True``) is an error. Returns ``module``.
    """
    for layer in module.modules():
        if type(layer) in _SYNCHRONIZED:
            layer.__class__ = _SYNCHRONIZED[type(layer)]
            layer.process_group = process_group
    return module


def revert_sync_batchnorm(module: torch.nn.Module) -> torch.nn.Module:
    """Takes :func:`convert_sync_batchnorm` back, in place. Returns ``module``."""
    for layer in module.modules():
        if type(layer) in _PLAIN:
            layer.__class__ = _PLAIN[type(layer)]
            del layer.process_group
    return module
