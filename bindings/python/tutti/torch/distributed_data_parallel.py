"""DistributedDataParallel for every strategy of Tutti, also those that exchange weights or need an optimizer."""

import contextlib
import hashlib
import io
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch import optimizer_steps, states
from tutti.torch.checks import check_bucket_cap_mb, check_flag, check_loss_scale, check_optimizer
from tutti.torch.places import hold, places_of
from tutti.torch.qadam import QAdam, with_warmup_of

# Attributes of a module that list names of parameters and buffers which each rank has for itself: torch's and Bagua's.
_IGNORE = ("_ddp_params_and_buffers_to_ignore", "_bagua_params_and_buffers_to_ignore")


def ignored_in(module: torch.nn.Module) -> set[str]:
    """The names of parameters and buffers that each rank has for itself."""
    # torch's DDP knows a parameter of the outermost module by a name that begins with a dot.
    return {name.removeprefix(".") for attribute in _IGNORE for name in getattr(module, attribute, ())}


def _warn_of_unknown(ignored: set[str], module: torch.nn.Module) -> None:
    """Warns of names that ``module`` does not have.

    No error: models that are shared between configurations list names of layers that some do not have.
    """
    tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    unknown = sorted(ignored.difference(name for name, _ in tensors))
    if unknown:
        names = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
        warnings.warn(f"{len(unknown)} names of what each rank has for itself ({names}) are none of a parameter or buffer "
                      "of the module, and are passed over: give names of its named_parameters() and named_buffers()",
                      stacklevel=3)


def _numbered(saved: dict[str, Any]) -> dict[str, Any]:
    """``saved``, which the ``state_dict()`` of an optimizer returned, with its groups in a dict by their numbers."""
    return {key: dict(enumerate(value)) if key == "param_groups" else value for key, value in saved.items()}


def _check_scaler(optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError where a loss scaler that the strategy cannot do with makes the step of `optimizer`.

    A scaler whose ranks do not agree skips a step on the rank alone whose gradients overflow, and the other ranks would
    wait. QAdam puts gradients into the momentum before any scaler has divided them by its scale.
    """
    steps = (torch.amp.GradScaler.step.__code__, torch.amp.GradScaler._maybe_opt_step.__code__)
    frame = sys._getframe(1)
    for _ in range(8):
        frame = frame.f_back
        if frame is None:
            return
        scaler = frame.f_locals.get("self") if frame.f_code in steps else None
        # A scaler that is not enabled, as torch.amp.GradScaler() is on a machine without CUDA, skips no step.
        if scaler is not None and scaler.is_enabled() and not isinstance(scaler, tutti.torch.GradScaler):
            if isinstance(optimizer, QAdam):
                raise ValueError("qadam takes no scaled losses, because it puts gradients into the momentum before a "
                                 "scaler divides them by the scale: train without a GradScaler, in bf16 for example")
            raise ValueError("torch.amp.GradScaler skips a step on one rank alone when gradients overflow there, and "
                             "the other ranks would wait: use tutti.torch.GradScaler(model), whose ranks skip together")


def _calls_closure_first(optimizer: torch.optim.Optimizer) -> bool:
    """Whether step(closure) is known to call its closure once, before it changes any weight."""
    module = type(optimizer).step.__module__
    return isinstance(optimizer, QAdam) or module.startswith("torch.optim.") and module != "torch.optim.lbfgs"


def _bucket_bytes(bucket_cap_mb: float | None) -> int:
    """The bytes of a bucket; None, as in torch's DistributedDataParallel, stands for 25 MiB."""
    check_bucket_cap_mb(bucket_cap_mb)
    return int((25 if bucket_cap_mb is None else bucket_cap_mb) * 2**20)


def _optimizers_in(optimizer: Any) -> list[torch.optim.Optimizer]:
    """The optimizers that a wrapper is given as ``optimizer``. TypeError where it is no list of them."""
    if optimizer is None:
        return []
    every = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else optimizer
    if not isinstance(every, Iterable):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer, a list of them, or None")
    return list(every)


class DistributedDataParallel(torch.nn.Module):
    """Keeps the replicas of ``module`` in step by ``strategy`` while it trains on all ranks of ``process_group``.

        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized")
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss(model(inputs), targets).backward()    # gradients are exchanged before it returns,
            optimizer.step()                           # or weights before or after the step
        model.flush()                                  # all ranks have the same weights now

    Wrap a module that is complete (after ``to``, ``requires_grad_`` and loading weights), on all ranks at the same
    time: parameters and buffers become those of rank 0, except those that ``module._ddp_params_and_buffers_to_ignore``
    names, which stay each rank's own. ``optimizer`` is an optimizer or a list of them; strategies that exchange weights
    must know every optimizer that changes the module, by a hook before and a hook after its step, and ``qadam`` needs
    :class:`tutti.torch.QAdam`. ``process_group`` (None: the default group) runs on the backend ``tutti``; the model gets
    a communicator of its own there.

    ``buffers`` says how ranks keep buffers equal, in every step that they make together: ``"broadcast"`` those of rank
    0, ``"average"`` floating and complex buffers, or ``"leave"`` each rank its own, which are then not broadcast or
    compared either. Without ``optimizer`` the model does not see steps: it then makes buffers equal in the first
    forward after a ``backward()`` that exchanged gradients, as torch's DistributedDataParallel does, so all ranks must
    call forward. A buffer that the module replaces or registers later is exchanged from then on; its shape must be the
    same on all ranks.

    With ``find_unused_parameters`` a backward need not reach all parameters: ``grad`` of those that no rank used stays
    None. Gradients travel in buckets of ``bucket_cap_mb`` MiB (None: 25). With ``autotune`` the first steps try other
    buckets and schedules, and the fastest are kept (docs/autotuning.md); None: as ``TUTTI_AUTOTUNE`` says.

    ValueError names an argument or a call that is wrong; DistBackendError names the rank that died or is missing, and
    is also raised by ``backward()``. Used by one thread at a time. All ranks drop the model at the same step.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        strategy: str = "gradient_allreduce",
        process_group: dist.ProcessGroup | None = None,
        *,
        buffers: str = "broadcast",
        find_unused_parameters: bool = False,
        bucket_cap_mb: float | None = None,
        autotune: bool | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module is a {type(module).__name__}; DistributedDataParallel wraps a torch.nn.Module")
        if isinstance(module, (DistributedDataParallel, torch.nn.parallel.DistributedDataParallel)):
            raise ValueError("module is wrapped in DistributedDataParallel already, and its gradients would travel twice: "
                             "wrap its .module")
        self._ignored = ignored_in(module)
        _warn_of_unknown(self._ignored, module)
        # A tensor of which one name is not ignored is exchanged.
        parameters = self._exchanged(module.named_parameters(remove_duplicate=False))
        named_buffers = self._exchanged(module.named_buffers(remove_duplicate=False))
        lazy = [name for name, tensor in [*parameters, *named_buffers] if torch.nn.parameter.is_lazy(tensor)]
        if lazy:
            raise ValueError(f"{lazy[0]} is not initialized, so that the ranks do not know its shape: run one forward of the "
                             "module, whose layers are lazy, before it is wrapped")
        tutti.torch._check_strategy(strategy, "module, optimizer, strategy")
        check_flag("find_unused_parameters", find_unused_parameters)
        check_flag("autotune", autotune)
        optimizers = _optimizers_in(optimizer)
        self.process_group = dist.distributed_c10d._get_default_group() if process_group is None else process_group
        backend = tutti.torch._backend_of(self.process_group, "DistributedDataParallel")
        self.module = module
        self._replicas = tutti.torch._core().ModelReplicas(
            backend, parameters, named_buffers, with_warmup_of(optimizers, strategy), buffers, find_unused_parameters,
            _bucket_bytes(bucket_cap_mb), autotune)
        self._names = dict(self._exchanged(module.named_parameters(remove_duplicate=False)))
        self._places = places_of(module, "_parameters")
        # Empty where each rank has its own buffers, which nobody asks for.
        self._buffer_places = [] if buffers == "leave" else places_of(module, "_buffers")
        self._synchronizes = True
        self._steps_together = False
        self._is_half_loaded = False  # weights were loaded, and nothing has made ranks equal since
        self._optimizers: list[torch.optim.Optimizer] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []  # those in optimizers
        for one in optimizers:
            self.add_optimizer(one)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a tutti.torch.DistributedDataParallel belongs to a process group, and cannot be pickled or copied: "
                        "copy model.module, or save model.state_dict()")

    def forward(self, *inputs: Any, **arguments: Any) -> Any:
        # The check is no hook on `self.module`: a copy of the module (to average its weights, for example) would have
        # the hook, too.
        self._check_loaded()
        self._check_module()
        self._replicas.note_forward()
        if not self._optimizers and self._replicas.buffers_are_due:  # nobody tells of a step, in which that is done
            self._hand_over_buffers()
            self._replicas.synchronize_buffers()
        return self.module(*inputs, **arguments)

    @property
    def strategy(self) -> str:
        """The strategy name in full, with every option."""
        return self._replicas.strategy

    @property
    def step(self) -> int:
        """The number of completed steps, those before a loaded state included."""
        return self._replicas.step

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets the strategy do before and after each ``optimizer.step()`` what it does to the weights.

        Collective for ``QAdam``.
        """
        check_optimizer(optimizer)
        if any(optimizer is known for known in self._optimizers):
            raise ValueError("DistributedDataParallel knows this optimizer already")
        if self.strategy.startswith("qadam") and not isinstance(optimizer, QAdam):
            raise ValueError(f"the strategy {self.strategy} needs tutti.torch.QAdam, not {type(optimizer).__name__}")
        mine = set(map(id, self.module.parameters()))
        if not any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"]):
            raise ValueError(f"the {type(optimizer).__name__} has no parameter of the module: make it from "
                             "module.parameters() of the module that is wrapped")
        if isinstance(optimizer, QAdam):
            optimizer._attach(self._replicas)
        self._optimizers.append(optimizer)
        number = len(self._optimizers)
        # The optimizer does not keep the model alive.
        this = weakref.ref(self)
        # The gradients of parameters that are ignored are this rank's own with every strategy.
        checks_scaler = self._replicas.exchanges_weights or isinstance(optimizer, QAdam) or any(
            name in self._ignored for name, _ in self.module.named_parameters())

        were_written = False  # weights, before the step that makes a state

        def before(known: torch.optim.Optimizer, arguments: tuple, keywords: dict) -> tuple[tuple, dict] | None:
            model = this()
            if model is not None and checks_scaler:
                _check_scaler(known)
            if model is None or model._steps_together or optimizer_steps.is_inside_another_step(known):
                return None
            if optimizer_steps.only_makes_state():
                nonlocal were_written
                were_written = model.weights_were_written()
                return None
            closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")
            if closure is None or not _calls_closure_first(known):
                model._begin_update(closure is None, number)
                return None
            # The closure runs before the update: an exchange that is under way has the time of forward and backward.
            with torch.enable_grad():
                loss = closure()
            model._begin_update(True, number)
            if len(arguments) > 1:
                return (arguments[0], lambda: loss, *arguments[2:]), keywords
            return arguments, {**keywords, "closure": lambda: loss}

        def after(known: torch.optim.Optimizer, _arguments: tuple, _keywords: dict) -> None:
            model = this()
            if model is None or model._steps_together or optimizer_steps.is_inside_another_step(known):
                return
            if optimizer_steps.only_makes_state():
                if not were_written:
                    model._replicas.cancel_update()  # the weights were written, and are what they were
                return
            model._end_update()

        self._hooks += [optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)]

    def _leave_optimizers(self) -> None:
        """Lets optimizers keep the state of theirs that ends with this wrapper, before its owner drops it."""
        for optimizer in self._optimizers:
            if isinstance(optimizer, QAdam):
                optimizer._leave()

    @contextlib.contextmanager
    def one_step(self) -> Iterator[None]:
        """All that optimizers do inside is one step of the strategy, also when some of them, or all, are skipped.

        Otherwise each ``optimizer.step()`` is a step of its own, and a strategy that exchanges weights does so in each.
        """
        self._begin_update(uses_gradients=False)
        self._steps_together = True
        try:
            yield
        except BaseException:
            self._replicas.cancel_update()
            raise
        finally:
            self._steps_together = False
        self._end_update()

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether ``backward()`` exchanges gradients; otherwise it adds them up on this rank, as in ``no_sync``."""
        return self._synchronizes

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, synchronizes: bool) -> None:
        self._replicas.set_synchronize(synchronizes)
        self._synchronizes = synchronizes

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """``backward()`` inside adds gradients up on this rank; the first one afterwards exchanges their sum."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def flush(self) -> None:
        """Gives all ranks the average of their weights, and equal buffers, before an evaluation or a checkpoint.

        Leaves weights alone that the strategy keeps equal anyway. Collective.
        """
        self._check_module()
        self._hand_over_buffers()
        self._replicas.flush()

    def broadcast(self) -> None:
        """Gives all ranks the parameters and buffers of rank 0, after they were written other than by a step.

        With ``buffers="leave"`` buffers stay each rank's own. Collective.
        """
        self._check_module_on_all_ranks("broadcast")
        self._hand_over_buffers()
        self._replicas.broadcast()
        self._is_half_loaded = False

    def weights_were_written(self) -> bool:
        """Whether weights that are exchanged were written since the last step, other than by a step.

        The next ``backward()`` would say so in an error; ``flush()`` makes them equal on all ranks, and ``broadcast()``
        takes rank 0's.
        """
        return self._replicas.weights_were_written()

    def broadcast_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives all ranks the state of rank 0's optimizer, for a training that is resumed. Collective.

        What the optimizer keeps of parameters that are ignored stays this rank's own, and so does what ``torch.load``
        does not read with ``weights_only=True``, such as a function. An optimizer that is equal on all ranks is left as
        it is; its class is the same on all. An error of one rank is one on all ranks.
        """
        self._broadcast_from(optimizer, optimizer)

    def _broadcast_from(self, optimizer: torch.optim.Optimizer, source: Any) -> None:
        """``broadcast_optimizer``, of what ``state_dict`` and ``load_state_dict`` of ``source`` know of the optimizer."""
        error, common, kind = None, b"", type(optimizer).__name__
        try:
            check_optimizer(optimizer)
            saved = io.BytesIO()
            torch.save((kind, states.common_part(_numbered(source.state_dict()))), saved)
            common = saved.getvalue()
        except Exception as failed:
            error = failed
        self._agree_on_error(error, "broadcast_optimizer")
        digest = hashlib.sha256(common).digest()
        if not self._replicas.on_any_rank(self._replicas.broadcast_optimizer_state(digest) != digest):
            return
        received = self._replicas.broadcast_optimizer_state(common)
        try:
            # To the CPU: rank 0's GPU is another rank's. The optimizer puts its state where its parameters are.
            kind_of_rank_0, common_part = torch.load(io.BytesIO(received), map_location="cpu", weights_only=True)
            if kind != kind_of_rank_0:
                raise ValueError(f"the optimizer of rank {self.process_group.rank()} is a {kind}, and that of rank 0 a "
                                 f"{kind_of_rank_0}: make optimizers of one class on all ranks")
            self._load_common_part(optimizer, source, common_part)
        except Exception as failed:
            error = failed
        self._agree_on_error(error, "broadcast_optimizer")

    def _load_common_part(self, optimizer: torch.optim.Optimizer, source: Any, common: dict[str, Any]) -> None:
        """Loads the common part of what ``_numbered`` returned on rank 0 for the state of its optimizer."""
        exchanged = {parameter for _, parameter in self._exchanged(self.module.named_parameters(remove_duplicate=False))}
        ignored = [parameter for parameter in self.module.parameters() if parameter not in exchanged]
        own = {parameter: optimizer.state[parameter] for parameter in ignored if parameter in optimizer.state}
        loaded = states.with_common_part(_numbered(source.state_dict()), common)
        loaded = {key: list(value.values()) if key == "param_groups" else value for key, value in loaded.items()}
        states.load_optimizer(optimizer, loaded, source)
        for parameter in ignored:
            optimizer.state.pop(parameter, None)
        optimizer.state.update(own)

    def check_replicas(self) -> None:
        """Raises an error that names a rank and a tensor unless parameters and buffers are equal on all ranks.

        With a strategy that exchanges weights they are equal after :meth:`flush`. With ``buffers="leave"`` buffers are
        not compared. Collective.
        """
        self._check_module_on_all_ranks("check_replicas")
        self._hand_over_buffers()
        self._replicas.check_replicas()

    def agree_on_overflow(self, mine: bool) -> bool:
        """Whether ``mine`` is true on any rank: all ranks skip a step, or none. See :class:`tutti.torch.GradScaler`.

        Collective, except for ``async`` after its warm-up, which returns ``mine``.
        """
        return self._replicas.agree_on_overflow(mine)

    def set_loss_scale(self, scale: float) -> None:
        """Says that losses are multiplied by ``scale`` from here on, so that residuals follow.

        Collective on a change.
        """
        check_loss_scale(scale)
        self._replicas.set_loss_scale(scale)

    def pause(self) -> None:
        """Pauses the rounds of ``async``, on all ranks; no effect with other strategies."""
        self._replicas.pause()

    def resume(self) -> None:
        """Ends a ``pause``."""
        self._replicas.resume()

    def stop(self) -> None:
        """Ends the rounds of ``async`` for good, on all ranks."""
        self._replicas.stop()

    def take_statistics(self) -> dict[str, int | float]:
        """The exchange since the last call: steps, bytes on the wire and of the values, seconds exposed and in all, and the
        processor seconds of the engine's thread, in all and waiting for peers."""
        return self._replicas.take_statistics()

    @property
    def tuning(self) -> dict[str, Any]:
        """What ``autotune`` has tried and chosen so far, equal on all ranks.

        ``state`` is ``"off"``, ``"nothing to tune"`` (``reason`` says why), ``"tuning"`` or ``"done"``. ``trials`` are
        dictionaries of the options tried and their ``seconds``; ``start`` and ``choice`` are the options that were
        given and those that are best, and ``gain`` is the share of the time that they save. At most ``most_backwards``
        backward passes are exchanged for it; ``backwards`` were.
        """
        return self._replicas.tuning

    def get_extra_state(self) -> dict[str, Any] | None:
        """What later steps depend on beside weights, buffers and gradients; a part of ``state_dict()``.

        The state is this rank's own: save it on each rank, between two steps. None, with a warning, after an exchange or
        a ``load_state_dict`` that failed: ``state_dict()`` then has the weights alone, which may be half exchanged, and a
        strategy that loads it on all ranks starts anew.
        """
        try:
            return self.strategy_state()
        except RuntimeError as error:
            warnings.warn(f"{error}: state_dict() has the weights alone, which may be half exchanged, and a strategy that "
                          "loads it starts anew", stacklevel=2)
            return None

    def strategy_state(self) -> dict[str, Any]:
        """The state of ``get_extra_state()``; raises the error of an exchange or a ``load_state_dict`` that failed."""
        if self._is_half_loaded:
            raise RuntimeError("tutti: the state cannot be saved: the last load_state_dict failed, so it may not be that of "
                               "the weights")
        # The tensor is named by the rank: torch.distributed.checkpoint keeps one of the values that ranks give one name.
        name = f"rank {self.process_group.rank()} of {self.process_group.size()}"
        return {"strategy": self.strategy, "state": {name: states.to_tensor(self._replicas.save_state())}}

    def set_extra_state(self, state: Any) -> None:
        """Does nothing: this module's own ``load_state_dict`` loads the state after the weights."""

    def load_strategy_state(self, saved: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Loads what ``get_extra_state()`` returned on this rank or, for any world, on all saved ranks in their order.

        This rank's own will do in a world of the same size and nodes, and that of any one rank where the strategy has
        nothing but its step. The weights are those of the checkpoint already. Collective. ValueError, on every rank, says
        what does not fit.
        """
        every = saved if isinstance(saved, Sequence) else [saved]
        error, strategy_states = None, None
        try:
            strategy_states = [states.strategy_state_of(one, f"load_strategy_state: saved[{index}]", "get_extra_state()")
                               for index, one in enumerate(every)]
        except Exception as failed:  # the other ranks hear of any error, and would wait otherwise
            error = failed
        self._agree_on_error(error, "load_strategy_state")
        self._replicas.load_state(strategy_states)
        self._is_half_loaded = False

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        strict: bool = True,
        assign: bool = False,
    ) -> Any:
        """Loads what ``state_dict()`` returned on this rank or, given a list, on all ranks of the saved world, by rank.

        A world of another size, or whose ranks are spread over nodes in another way, needs the list; where the strategy
        has neither residuals nor replicas, what one rank saved will do for all, as with stock DDP. Where the list's length
        is not the number of ranks now, all ranks get the weights of its first one. Where the state of the strategy is
        missing on all ranks, the strategy starts anew from rank 0's weights; missing on some, it is an error. Collective.
        What does not fit is an error on every rank: torch's own RuntimeError on a rank whose weights do not, ValueError
        elsewhere. The strategy's state is then unchanged, and if weights may have been loaded on some ranks, forward and
        steps are errors on all ranks until ``load_state_dict`` or ``broadcast`` succeeds.
        """
        error, result, mine, strategy_states = None, None, None, None
        try:
            if assign:
                raise ValueError("load_state_dict(assign=True) gives parameters other memory, where the ranks do not find "
                                 "them: load the module with it before the module is wrapped")
            mine, loaded = self._parts_of(state_dict)
            strategy_states = states.strategy_states_in(loaded)
        except Exception as failed:
            error = failed
        self._agree_on_error(error, "load_state_dict")
        begins_anew = self._begins_anew(strategy_states is None)
        self._is_half_loaded = True
        try:
            result = super().load_state_dict(states.weights_of(mine), strict)
        except Exception as failed:
            error = failed
        self._agree_on_error(error, "load_state_dict")
        if begins_anew:
            self.broadcast()
        else:
            self._replicas.load_state(strategy_states)
        self._is_half_loaded = False
        return result

    def _begins_anew(self, lacks_state: bool) -> bool:
        """Whether all ranks load state dicts that lack the state of the strategy. ValueError names those of some ranks."""
        if not self._replicas.on_any_rank(lacks_state):
            return False
        if self._replicas.on_any_rank(not lacks_state):
            own = self.process_group.rank()
            lacking = [rank for rank in range(self.process_group.size())
                       if self._replicas.on_any_rank(lacks_state and rank == own)]
            raise states.some_are_missing([f"the state_dict of rank {rank}" for rank in lacking])
        return True

    def _agree_on_error(self, error: Exception | None, call: str) -> None:
        """Raises ``error``, or where this rank has none an error of another rank, in ``call`` of all ranks. Collective."""
        mistake = "" if error is None else str(error) or type(error).__name__
        try:
            self._replicas.agree_on_mistake(call, mistake if not mistake or mistake.startswith(call) else f"{call}: {mistake}")
        except ValueError:
            if error is None:
                raise
        if error is not None:
            raise error

    def _parts_of(self, state_dict: Any) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """The state dict with this rank's weights, and those with the states of the strategy, in ``state_dict``."""
        every = [state_dict] if isinstance(state_dict, Mapping) else state_dict
        wrong = [one for one in every if not isinstance(one, Mapping)] if isinstance(every, Sequence) else [state_dict]
        if wrong or not every:
            what = f"a value of type {type(wrong[0]).__name__}" if wrong else "an empty list"
            raise ValueError(
                f"load_state_dict: rank {self.process_group.rank()} got {what}; state_dict is what state_dict() returned "
                "on this rank, or the list of what it returned on all ranks")
        # All states of a list: as many ranks on other nodes need those of the others, too, where one rank of each node
        # exchanges for all.
        return every[self.process_group.rank() if len(every) == self.process_group.size() else 0], every

    def _exchanged(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
        """The named ``tensors``, without those that each rank has for itself."""
        return [(name, tensor) for name, tensor in tensors if name not in self._ignored]

    def _begin_update(self, uses_gradients: bool, optimizer: int = 0) -> None:
        # A module that `with_bagua` has given a wrapper never calls forward() of the wrapper.
        self._check_loaded()
        self._check_module()
        self._replicas.begin_update(uses_gradients, optimizer)

    def _end_update(self) -> None:
        self._hand_over_buffers()
        self._replicas.end_update()

    def _hand_over_buffers(self) -> None:
        """Tells the replicas what the buffers are now: a module may assign one anew, fill one that was None, or get one.

        Called before every call that makes buffers equal.
        """
        if not hold(self._buffer_places):
            self._replicas.set_buffers(self._exchanged(self.module.named_buffers(remove_duplicate=False)))
            self._buffer_places = places_of(self.module, "_buffers")

    def _check_loaded(self) -> None:
        if self._is_half_loaded:
            raise ValueError("tutti: the last load_state_dict failed, so weights may be loaded on some ranks alone: call "
                             "load_state_dict with a checkpoint that fits, or broadcast(), which takes the weights of rank "
                             "0 as they are, on all ranks before the training goes on")

    def _check_module_on_all_ranks(self, call: str) -> None:
        error = None
        try:
            self._check_module()
        except ValueError as failed:
            error = failed
        self._agree_on_error(error, call)

    def _check_module(self) -> None:
        if hold(self._places):
            return
        now = dict(self._exchanged(self.module.named_parameters(remove_duplicate=False)))
        for name in [*self._names, *now]:
            if now.get(name) is not self._names.get(name):
                how = "registered" if name not in self._names else "removed" if name not in now else "replaced"
                raise ValueError(
                    f"tutti: parameter {name} was {how} after the module was wrapped (load_state_dict(assign=True)?), "
                    "so the ranks do not exchange it as it is now: delete this wrapper and wrap the module anew, or call "
                    "with_bagua again, after every change of its parameters")
        self._places = places_of(self.module, "_parameters")  # modules without parameters have come or gone
