"""Tutti for PyTorch: the backend ``tutti`` of ``torch.distributed``, and DDP with an algorithm.

    import tutti.torch                                    # not needed from torch 2.14 on
    torch.distributed.init_process_group("tutti")
    model = DistributedDataParallel(model)
    tutti.torch.register(model, "bytegrad")               # gradients travel in 8 bits

or, for strategies that exchange weights or need an optimizer of their own:

    model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized")

Importing this module makes no thread and no socket.
"""

import atexit
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from tutti.torch import _extension  # before torch, since this module says which torch is missing

import torch
import torch.distributed as dist

from tutti.torch import _launch, states
from tutti.torch.checks import check_loss_scale
from tutti.torch.distributed_data_parallel import DistributedDataParallel
from tutti.torch.grad_scaler import GradScaler
from tutti.torch.qadam import QAdam
from tutti.torch.sync_batchnorm import convert_sync_batchnorm, revert_sync_batchnorm

__all__ = [
    "DistributedDataParallel", "GradScaler", "GradientExchange", "QAdam", "Strategy", "convert_sync_batchnorm", "empty",
    "parse_strategy", "register", "register_backend", "revert_sync_batchnorm"
]


@functools.cache
def _core():
    """The extension module, loaded with the first group."""
    _C = _extension.load()
    # Leaves the groups of a program that does not call destroy_process_group while Python still runs.
    atexit.register(_C.end_all_groups)
    return _C


def _check_options(backend_options) -> None:
    """Raises ValueError for ``pg_options``, of which the backend has none.

    torch gives every backend of a group the same ones, and in a group of "cuda:nccl,cpu:tutti" also those that it makes
    itself for the backend of the other device: these are passed over.
    """
    c10d = dist.distributed_c10d
    of_others = [getattr(c10d, name).Options for name in ("ProcessGroupNCCL", "ProcessGroupXCCL") if hasattr(c10d, name)]
    if backend_options is not None and not isinstance(backend_options, tuple(of_others)):
        raise ValueError(
            f"pg_options is a {type(backend_options).__name__}, and the backend tutti has no options: leave pg_options "
            "out. timeout is an argument of its own, and docs/configuration.md lists Tutti's environment variables")


def _check_timeout(timeout: timedelta) -> None:
    """Raises ValueError for a ``timeout=`` of a group that would mean something else in its calls, where 0 is none."""
    if timeout < timedelta(milliseconds=1):  # so is timedelta.max, as torch hands it on
        raise ValueError(f"timeout is {timeout.total_seconds():g} s; the timeout of a group is a millisecond or more. For "
                         "no timeout give timedelta(days=36500): torch turns timedelta.max into a negative one")


def _create_backend(options, backend_options):
    _check_options(backend_options)
    _check_timeout(options.timeout)
    return _core().create_backend(options)


def register_backend() -> None:
    """Registers the backend ``tutti``, as importing this module does; a second call changes nothing."""
    if "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create_backend, extended_api=True, devices=["cpu", "cuda"])


def _backend_of(group: dist.ProcessGroup, caller: str):
    """The backend `tutti` of ``group``, also where TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend.

    That of the CPU where a group has several.
    """
    if not isinstance(group, dist.ProcessGroup):
        if dist.is_initialized() and group not in (None, dist.GroupMember.NON_GROUP_MEMBER):
            raise TypeError(f"tutti.torch.{caller}: the process group is a {type(group).__name__}; give what "
                            "torch.distributed.new_group returned, or None for the default group")
        raise ValueError(f"tutti.torch.{caller}: " + (
            f"rank {dist.get_rank()} is no member of the process group" if dist.is_initialized() else
            'there is no process group: call torch.distributed.init_process_group("tutti") first'))
    for device in sorted(group._device_types, key=lambda device: device.type != "cpu"):
        backend = group._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if isinstance(backend, _core().ProcessGroupTutti):
            return backend
    raise ValueError(
        f"tutti.torch.{caller}: the process group runs on {dist.get_backend(group)}; "
        'make the group with init_process_group("tutti") or new_group(backend="tutti")')


def empty(*size, dtype: torch.dtype | None = None, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Returns a tensor like ``torch.empty(*size)`` in memory that the ranks of this machine map.

    Collectives on such a tensor copy nothing on the way. ``size`` is a number of integers or one sequence; ``dtype``
    is torch's default where it is None; ``group`` (None: the default group) runs on the backend ``tutti``, and the tensor
    may be used in every group. A forked child that writes to the tensor writes to its parent's memory. Raises
    DistBackendError when ``TUTTI_ARENA_BYTES`` of such memory are in use.
    """
    try:
        sizes = [operator.index(one) for one in (size[0] if len(size) == 1 and isinstance(size[0], Iterable) else size)]
    except TypeError:
        raise TypeError(f"tutti.torch.empty: size is {size}; give integers, or one sequence of them") from None
    if not isinstance(dtype, torch.dtype | None):
        raise TypeError(f"tutti.torch.empty: dtype is a {type(dtype).__name__}; give a torch.dtype such as torch.float32")
    backend = _backend_of(dist.group.WORLD if group is None else group, "empty")
    return backend.empty(sizes, torch.get_default_dtype() if dtype is None else dtype)


def _check_strategy(strategy, arguments: str) -> None:
    """Raises TypeError unless ``strategy`` is a str; ``arguments`` names the caller's arguments in their order."""
    if not isinstance(strategy, str):
        raise TypeError(f"strategy is a {type(strategy).__name__}; give a str such as \"bytegrad\" (the arguments are "
                        f"{arguments})")


class Strategy(NamedTuple):
    """What a strategy name says; see :func:`parse_strategy`."""

    name: str  # in full, with every option
    exchanges: str  # "gradients", "weights", "weight differences" or "momentum"


def parse_strategy(name: str) -> Strategy:
    """Reads a strategy name such as ``"bytegrad:codec=bf16"``. ValueError lists what would be right.

    Needs no process group. Names whose ranks exchange gradients suit :func:`register`; the others need
    :class:`DistributedDataParallel`.
    """
    if not isinstance(name, str):
        raise TypeError(f"parse_strategy: name is a {type(name).__name__}; give a str such as \"bytegrad\"")
    return Strategy(*_core().parse_strategy(name))


def _saved_states(state_dict) -> list[bytes]:
    """The states in what GradientExchange.state_dict() returned, on one rank or on all. ValueError says what is wrong."""
    every = [state_dict] if isinstance(state_dict, Mapping) else state_dict
    if not isinstance(every, Sequence) or not every:
        every = [every]
    saved = []
    for one in every:
        state = one.get("state") if isinstance(one, Mapping) else None
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
            raise ValueError(
                f"GradientExchange.load_state_dict: rank {dist.get_rank()} got {_words_for(one)}; state_dict is what "
                "GradientExchange.state_dict() returned on this rank, or the list of what it returned on all ranks")
        saved.append(states.to_bytes(state))
    return saved


def _words_for(value) -> str:
    """What ``value`` is, in a few words."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {', '.join(map(repr, [*value][:5])) or '(none)'}"
    return f"a value of type {type(value).__name__}"


class GradientExchange:
    """The exchange of a model's gradients; made by :func:`register`. Used by one thread at a time."""

    def __init__(self, exchange):
        self._exchange = exchange

    def __repr__(self) -> str:
        return f"GradientExchange(strategy={self.strategy!r}, step={self.step})"

    def __reduce_ex__(self, protocol):
        raise TypeError("a GradientExchange belongs to a process group, and cannot be pickled or copied: save state_dict()")

    @property
    def strategy(self) -> str:
        """The strategy name in full, with every option."""
        return self._exchange.strategy

    @property
    def step(self) -> int:
        """How many backward passes were exchanged, those before a loaded state included."""
        return self._exchange.step

    def state_dict(self) -> dict:
        """What later steps depend on beside weights and gradients: the step, and this rank's residuals.

        Each rank has a state of its own: save it on each rank, between two backward passes.
        """
        return {"strategy": self.strategy, "state": states.to_tensor(self._exchange.save_state())}

    def load_state_dict(self, state_dict) -> None:
        """Loads what ``state_dict`` returned: the list of all saved ranks', or this rank's own.

        This rank's own will do in a world of the same size, whose ranks are spread over nodes in the same way, and without
        residuals what any one rank saved. Collective. ValueError, on every rank, names what does not fit; nothing is
        changed then.
        """
        saved, mistake = [], None
        try:
            saved = _saved_states(state_dict)
        except ValueError as error:
            mistake = error
        try:
            self._exchange.load_state(saved)  # collective: an empty list is an error on every rank, and nobody waits
        except ValueError:
            if mistake is None:
                raise
            raise mistake from None

    def set_loss_scale(self, scale: float) -> None:
        """Says that losses are multiplied by ``scale`` from here on, so that residuals follow. Collective on a change."""
        check_loss_scale(scale)
        self._exchange.set_loss_scale(scale)


def _parameters_of(model: torch.nn.parallel.DistributedDataParallel) -> list[tuple[str, torch.Tensor]]:
    """The parameters that ``model`` does not ignore, by all their names."""
    # DDP knows a parameter of the outermost module by a name that begins with a dot.
    return [(name, parameter) for name, parameter in model.module.named_parameters(remove_duplicate=False)
            if (name if "." in name else f".{name}") not in model.parameters_to_ignore]


def _check_gradients(parameters: list[tuple[str, torch.Tensor]], module: torch.nn.Module) -> None:
    """Raises ValueError where a parameter has sparse gradients, as DDP knows from the module that has it first."""
    owners = {parameter: owner for owner in reversed([*module.modules()]) for parameter in owner.parameters(recurse=False)}
    for name, parameter in parameters:
        owner = owners.get(parameter)
        if parameter.requires_grad and isinstance(owner, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and owner.sparse:
            raise ValueError(f"register: parameter {name} has sparse gradients, which no strategy exchanges: make its "
                             "embedding with sparse=False, or leave register out, and DDP sums them exactly on the backend "
                             "tutti")


def register(model: torch.nn.parallel.DistributedDataParallel, strategy: str) -> GradientExchange:
    """Lets stock DistributedDataParallel exchange its gradients by ``strategy``, such as ``"bytegrad"``.

    Call it once, after the model was wrapped and before the first backward, on all ranks of the model's process group,
    which must run on the backend ``tutti``. DDP's buckets move to memory that the ranks of this machine map (see
    :func:`empty`). ``no_sync``, unused parameters, ``join`` and the rest are DDP's own, with one exception: gradients are
    averaged over all ranks, also in a ``join`` with ``divide_by_initial_world_size=False``. A parameter that is unfrozen
    later, whose gradient DDP does not exchange, is a ValueError of the next backward; one with sparse gradients is a
    ValueError at once. With ``average=false``, where they are added up instead, call ``zero_grad()`` before each backward
    that exchanges: DDP hands over what ``grad`` held before as well, so that the next exchange adds up an earlier sum once
    more on every rank. Strategies that exchange weights or momentum (``decentralized``, ``async``, ``qadam``) raise
    ValueError: they need :class:`DistributedDataParallel` of this module.
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile(model)
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(
            f"register: model is a {type(model).__module__}.{type(model).__qualname__}; wrap it in "
            "torch.nn.parallel.DistributedDataParallel first, or use tutti.torch.DistributedDataParallel(module, optimizer, "
            "strategy) instead of register")
    _check_strategy(strategy, "model, strategy")
    if getattr(model, "_use_python_reducer", False):
        raise ValueError("register: torch._dynamo.config.optimize_ddp is \"python_reducer\", where DDP exchanges "
                         "gradients without its reducer; set it to \"ddp_optimizer\" before the model is wrapped")
    backend = _backend_of(model.process_group, "register")
    parameters = _parameters_of(model)
    _check_gradients(parameters, model.module)
    exchange = _core().GradientExchange(backend, parameters, strategy)
    try:
        exchange.register(model.reducer)
    except RuntimeError as error:
        raise ValueError("register: the model has a communication hook already, of an earlier tutti.torch.register or "
                         "register_comm_hook; DDP takes one: wrap the module in DistributedDataParallel anew") from error
    return GradientExchange(exchange)


_extension.check_torch()
register_backend()
