"""Hugging Face's Accelerate and Trainer on the backend ``tutti``.

    import tutti.accelerate
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
    arguments = TrainingArguments(..., ddp_backend="tutti")                       # of transformers

or ``--ddp_backend tutti`` on the command line of a script that reads its arguments by HfArgumentParser. On CPUs they need
``cpu=True`` and ``use_cpu=True`` (``--use_cpu``) as well. Accelerate takes no backend by name that it does not know; the
import teaches it this one. A process that no launcher started trains alone, as with other backends where none is named.
``tutti.torch.register(model, "bytegrad")`` works on the model that ``accelerator.prepare`` returned.
"""

import functools
from types import ModuleType
from typing import Any

import tutti.torch  # before torch: says what to install where torch is missing
import torch
from tutti._after_import import after_import

_BACKEND = "tutti"
_ON_CPU = "say Accelerator(cpu=True), or TrainingArguments(use_cpu=True)"


def _teach(state: ModuleType) -> None:
    """Lets ``accelerate.state.PartialState`` take the backend ``tutti`` wherever it would take gloo or nccl."""
    kinds = state.DistributedType
    partial_state = state.PartialState
    prepare, make = partial_state._prepare_backend, partial_state.__init__

    @functools.wraps(prepare)
    def prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> tuple:
        chosen, kind = prepare(self, cpu, sagemaker_dp, None if backend == _BACKEND else backend)
        if backend != _BACKEND:
            return chosen, kind
        if kind not in (kinds.MULTI_CPU, kinds.MULTI_GPU, kinds.NO):
            raise ValueError(f"the backend {_BACKEND} exchanges tensors of CPUs and of GPUs with CUDA, and Accelerate has "
                             f"chosen {kind.value}: {_ON_CPU}")
        return _BACKEND, kind

    @functools.wraps(make)
    def make_state(self: Any, cpu: bool = False, **options: Any) -> None:
        if options.get("backend") == _BACKEND:
            _, kind = prepare_backend(self, cpu, False, _BACKEND)
            if kind is kinds.NO:
                rank, size, _, _, launcher = tutti.torch._core().launcher_identity()
                if size > 1:
                    mend = "start the script by torchrun, whose variables Accelerate reads"
                    if not cpu and not torch.cuda.is_available():
                        mend = f"torch finds no GPU, so {_ON_CPU}"
                    raise ValueError(f"rank {rank}: {launcher} has started {size} processes, and Accelerate would let each of "
                                     f"them train alone: {mend}")
                options.pop("backend")  # there is one process, and no group
        make(self, cpu, **options)

    partial_state._prepare_backend = prepare_backend
    partial_state.__init__ = make_state


def _add_choice(training_args: ModuleType) -> None:
    """Lets HfArgumentParser, which has a closed list of backends, take ``--ddp_backend tutti``."""
    choices = training_args.TrainingArguments.__dataclass_fields__["ddp_backend"].metadata.get("choices")
    if choices is not None and _BACKEND not in choices:
        choices.append(_BACKEND)


after_import("accelerate.state", _teach)
after_import("transformers.training_args", _add_choice)
