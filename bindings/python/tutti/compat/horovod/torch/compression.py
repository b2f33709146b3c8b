"""What old scripts use as ``hvd.Compression``: how a tensor becomes fewer bytes for an allreduce."""

import torch


class NoneCompressor:
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The tensor that travels, and what ``decompress`` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: None) -> torch.Tensor:
        """The tensor that ``compress`` was given, after its way."""
        return tensor


class FP16Compressor:
    """Sends floating tensors in half precision."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """The tensor that travels, and what ``decompress`` needs to know."""
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, context: torch.dtype) -> torch.Tensor:
        """The tensor that ``compress`` was given, after its way."""
        return tensor.to(context)


class Compression:
    """The choices for ``compression=``; strategies of Tutti, such as ``bytegrad``, send less than these."""

    none = NoneCompressor
    fp16 = FP16Compressor
