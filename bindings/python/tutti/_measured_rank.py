"""One rank of a run of ``python -m tutti.compare``: the user's script, with another backend and a clock.

    python -m tutti._measured_rank BACKEND STRATEGY FOLDER WARMUP STEPS script.py [arguments]

STRATEGY, unless it is empty, is that by which models of torch's DistributedDataParallel exchange gradients.
"""

import functools
import json
import os
import runpy
import sys
import time

import torch.distributed as dist
from torch.autograd.profiler import profile
from torch.distributed import device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

import tutti.torch  # registers the backend
from tutti.torch import optimizer_steps

PROFILED_STEPS = 5  # steps after the measured ones, which the profiler would slow down


class Enough(BaseException):
    """Ends the script once all steps are measured; no handler of Exception stops it."""


def replaced(named: str | None, backend: str) -> str:
    """The backend for a script that names `named`: the CPU's part is replaced, and other devices keep theirs."""
    if named is None:
        return backend
    named = named.lower()  # as torch reads names
    if named in ("gloo", "tutti", "mpi", "undefined"):
        return backend
    parts = dict(part.split(":", 1) for part in named.split(",") if ":" in part)
    if "cpu" not in parts:
        raise ValueError(f"tutti.compare: the script names the backend {named}, which has no part for the CPU; both "
                         "gloo and Tutti exchange tensors of the CPU")
    return ",".join(f"{device}:{backend if device == 'cpu' else name}" for device, name in parts.items())


def replace_backend(backend: str) -> None:
    """Lets init_process_group and new_group make groups of `backend`, whatever the script names."""
    core = dist.distributed_c10d
    # What torch takes where nobody names a backend, as in init_device_mesh("cpu", (n,)).
    dist.Backend.default_device_backend_map["cpu"] = backend
    for name, place in (("init_process_group", 0), ("new_group", 2)):
        original = getattr(core, name)

        @functools.wraps(original)
        def patched(*arguments, _original=original, _place=place, _always=name == "init_process_group", **named):
            if len(arguments) > _place:
                was = arguments[_place]
                arguments = list(arguments)
                if was is not None or _always:
                    arguments[_place] = replaced(was, backend)
            elif _always or named.get("backend") is not None:
                named["backend"] = replaced(named.get("backend"), backend)
            return _original(*arguments, **named)

        for module in (core, dist, device_mesh):
            setattr(module, name, patched)


class Registration:
    """Registers a strategy with every model of torch's DistributedDataParallel; none where the strategy is empty."""

    def __init__(self, strategy: str):
        self.models = 0
        if strategy:
            self._wrap(strategy)

    def _wrap(self, strategy: str) -> None:
        make = DistributedDataParallel.__init__

        @functools.wraps(make)
        def made_and_registered(model, *arguments, **named):
            make(model, *arguments, **named)
            tutti.torch.register(model, strategy)
            self.models += 1

        DistributedDataParallel.__init__ = made_and_registered


def exists_group_of(backend: str) -> bool:
    """Whether `backend` serves the CPU in any of the process groups that there are now."""
    configs = dist.distributed_c10d._world.pg_backend_config.values()
    return any(f"cpu:{backend}" in config.split(",") for config in configs)


def covered(spans: list[tuple[float, float]]) -> float:
    """How much of the time line the spans cover together."""
    total = 0.0
    end = float("-inf")
    for begin, finish in sorted(spans):
        total += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return total


class Clock:
    """Called after each optimizer step; the first optimizer's steps count."""

    def __init__(self, backend: str, warmup: int, steps: int):
        self.backend = backend
        self.warmup = warmup
        self.steps = steps
        self.optimizer = None
        self.count = 0
        self.last = None
        self.step_seconds = []
        self.profiler = None
        self.share = None
        self.had_backend = False

    def __call__(self, optimizer, *_):
        now = time.perf_counter()
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer or not dist.is_initialized():
            return
        if optimizer_steps.is_inside_another_step(optimizer):
            return
        self.count += 1
        self.had_backend = self.had_backend or exists_group_of(self.backend)
        if self.warmup < self.count <= self.warmup + self.steps:
            self.step_seconds.append(now - self.last)
        self.last = now
        past = self.count - self.warmup - self.steps
        if past == 0:
            self.profiler = profile(use_kineto=True)
            self.profiler.__enter__()
            self.profiled_from = time.perf_counter()
        elif past == PROFILED_STEPS:
            self.end_profile()
            raise Enough

    def end_profile(self):
        if self.profiler is None:
            return
        seconds = time.perf_counter() - self.profiled_from
        self.profiler.__exit__(None, None, None)
        spans = [(event.time_range.start, event.time_range.end) for event in self.profiler.function_events
                 if event.name.startswith(f"{self.backend}:")]
        self.profiler = None
        self.share = min(1.0, covered(spans) / 1e6 / seconds)

    def result(self, registered: int) -> dict:
        return {"registered": registered, "rank": int(os.environ["RANK"]), "backend": self.backend,
                "optimizer_steps": self.count, "had_backend": self.had_backend, "step_seconds": self.step_seconds,
                "communication_share": self.share}


def main() -> None:
    backend, strategy, folder, warmup, steps, script, *arguments = sys.argv[1:]
    clock = Clock(backend, int(warmup), int(steps))
    replace_backend(backend)
    registration = Registration(strategy)
    register_optimizer_step_post_hook(clock)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    except SystemExit as ended:  # sys.exit(main()), after fewer steps than are measured
        if ended.code not in (None, 0):
            raise
    clock.profiler = None  # a script that ended before is measured without the share of communication
    with open(os.path.join(folder, f"rank{os.environ['RANK']}.json"), "w") as file:
        json.dump(clock.result(registration.models), file)
    if dist.is_initialized():
        dist.destroy_process_group()
    # Everything is written. Gloo of torch 2.15 sometimes aborts when the interpreter ends, which says nothing of the
    # script.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
