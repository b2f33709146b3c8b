"""Process groups and DDP classes of the script's own: init_ddp_connection, init_dist_connection and configure_ddp.

The oldest pages overrode init_ddp_connection and configure_ddp in the LightningModule, later ones init_dist_connection
(or init_ddp_connection) in the strategy. What is overridden is called in place of Lightning's own. A script that left
the process group to Lightning could name its backend in the environment, and DDP looked for unused parameters.
"""

import functools
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tutti.compat.deprecation import say_once

BACKEND_VARIABLE = "PL_TORCH_DISTRIBUTED_BACKEND"
_OF_STRATEGIES = ("init_dist_connection", "init_ddp_connection")


def _connect_of(strategy: Any, package: ModuleType) -> Callable[..., None] | None:
    """The method of the script that makes the process group; None if there is no such method, or a group already.

    A group is there in the second run of a Trainer, and where the strategy has made it by the variables of a launcher.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        return None
    module = strategy.lightning_module
    if module is not None and _overrides(module, "init_ddp_connection", package.LightningModule):
        return module.init_ddp_connection
    names = (name for name in _OF_STRATEGIES if _overrides(strategy, name, package.strategies.DDPStrategy))
    return next((getattr(strategy, name) for name in names), None)


def _overrides(owner: Any, name: str, base: type) -> bool:
    return getattr(type(owner), name) is not getattr(base, name)


def _call_with_as_many(function: Callable[..., None], *arguments: Any) -> None:
    """Calls ``function`` with the first of ``arguments``, as many as it takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        function(*arguments)
    else:
        number = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
        function(*arguments[:number])


def _connect(strategy: Any, function: Callable[..., None]) -> None:
    """Lets the script's ``function`` make the process group. Lightning then finds one and makes none."""
    import torch.distributed as dist

    owner = type(function.__self__).__name__
    say_once(f"{owner}.{function.__name__} is of Lightning 1: override setup_distributed of a DDPStrategy, or call "
             "torch.distributed.init_process_group before trainer.fit")
    strategy.set_world_ranks()
    environment = strategy.cluster_environment
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = environment.main_address, str(environment.main_port)
    slurm = type(environment).__name__ == "SLURMEnvironment"
    _call_with_as_many(function, strategy.global_rank, strategy.world_size, slurm)
    if not dist.is_initialized():
        raise RuntimeError(f"rank {strategy.global_rank}: {owner}.{function.__name__} has made no process group; call "
                           "torch.distributed.init_process_group in it")


def _check_wrapper(strategy: Any, package: ModuleType) -> None:
    """Raises ValueError where ``strategy`` has a wrapper of its own, and the model brings one."""
    model = strategy.lightning_module
    own_wrapper = not getattr(strategy, "exchanges_gradients", True)
    if not own_wrapper or not _overrides(model, "configure_ddp", package.LightningModule):
        return
    name = strategy.algorithm.partition(":")[0]
    raise ValueError(
        f"rank {strategy.global_rank}: {type(model).__name__}.configure_ddp would not be called: the strategy {name}, "
        f"which exchanges {strategy.exchanged_by.exchanges}, wraps the model itself. Remove configure_ddp, or use a "
        'strategy that exchanges gradients, such as Trainer(strategy="tutti:bytegrad")')


def _backend_of_environment(self: Any) -> str | None:
    """The backend that the environment names, for a strategy that names none."""
    backend = os.environ.get(BACKEND_VARIABLE)
    if not backend or self._process_group_backend:
        return None
    say_once(f'{BACKEND_VARIABLE}={backend} is of Lightning 1: write DDPStrategy(process_group_backend="{backend}")')
    if backend == "tutti":
        import tutti.torch  # noqa: F401
    return backend


def _init_dist_connection(self: Any, global_rank: int | None = None, world_size: int | None = None) -> None:
    """Makes the process group as Lightning does, for strategies that call it by ``super()``."""
    import torch.distributed as dist

    dist.init_process_group(self._get_process_group_backend(), rank=self.global_rank, world_size=self.world_size,
                            timeout=self._timeout)


def _init_ddp_connection(self: Any, global_rank: int, world_size: int, is_slurm_managing_tasks: bool = True) -> None:
    """Makes the process group as Lightning does, for LightningModules that call it by ``super()``."""
    _init_dist_connection(self.trainer.strategy)


def _configure_ddp(self: Any, model: Any, device_ids: list[int] | None) -> Any:
    """Wraps ``model`` as Lightning does, for LightningModules that call it by ``super()``."""
    return self.trainer.strategy._setup_model(model)


def _look_for_unused_parameters(strategy: Any) -> None:
    """Lets DDP find them where ``strategy`` does not say: so it was from Lightning 1.0 to 1.9. Tutti's strategies ask."""
    if hasattr(strategy, "exchanged_by") or "find_unused_parameters" in strategy._ddp_kwargs:
        return
    strategy._ddp_kwargs["find_unused_parameters"] = True
    say_once("DDP that looks for unused parameters unless told otherwise is of Lightning 1: write "
             'Trainer(strategy="ddp_find_unused_parameters_true") or DDPStrategy(find_unused_parameters=True), or false in '
             "both, which is faster, where every backward reaches every parameter")


def patch(package: ModuleType) -> None:
    """Lets ``package`` call the three methods where scripts override them."""
    strategy, module = package.strategies.DDPStrategy, package.LightningModule
    module.init_ddp_connection = _init_ddp_connection
    module.configure_ddp = _configure_ddp
    for name in _OF_STRATEGIES:
        setattr(strategy, name, _init_dist_connection)
    setup_distributed, configure_ddp = strategy.setup_distributed, strategy.configure_ddp
    get_backend, setup, setup_model = strategy._get_process_group_backend, strategy.setup, strategy._setup_model

    @functools.wraps(setup_distributed)
    def setup_distributed_as_the_script_does(self: Any) -> None:
        connect = _connect_of(self, package)
        if connect is not None:
            _connect(self, connect)
        setup_distributed(self)

    @functools.wraps(setup)
    def setup_if_the_wrapper_is_used(self: Any, trainer: Any) -> None:
        if trainer.state.fn == "fit":
            _check_wrapper(self, package)
        setup(self, trainer)

    @functools.wraps(configure_ddp)
    def configure_ddp_as_the_script_does(self: Any) -> None:
        owner = self.lightning_module
        if not _overrides(owner, "configure_ddp", module):
            configure_ddp(self)
            return
        say_once(
            f"{type(owner).__name__}.configure_ddp is of Lightning 1: override configure_ddp(self) of a DDPStrategy, "
            "which sets self.model")
        self.model = owner.configure_ddp(self.model, self.determine_ddp_device_ids())
        if self.root_device.type == "cuda":
            self._register_ddp_hooks()

    @functools.wraps(get_backend)
    def backend_of_environment_or_strategy(self: Any) -> str:
        return _backend_of_environment(self) or get_backend(self)

    @functools.wraps(setup_model)
    def setup_model_as_lightning_1_did(self: Any, model: Any) -> Any:
        _look_for_unused_parameters(self)
        return setup_model(self, model)

    strategy._setup_model = setup_model_as_lightning_1_did
    strategy._get_process_group_backend = backend_of_environment_or_strategy
    strategy.setup_distributed = setup_distributed_as_the_script_does
    strategy.setup = setup_if_the_wrapper_is_used
    strategy.configure_ddp = configure_ddp_as_the_script_does
