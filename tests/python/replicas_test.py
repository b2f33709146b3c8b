"""tutti.torch.DistributedDataParallel in ordinary loops: accumulation, scalers, clipping, hooks, several optimizers."""

import copy
import gc
import math
import os
import signal
import subprocess
import sys
import time
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.utils import checkpoint

import tutti.torch
from ranks import run_ranks

WEIGHTS = ["decentralized", "low_precision_decentralized"]
GRADIENTS = ["gradient_allreduce", "bytegrad"]


def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def loss_of(model, rank, step=0):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs, targets = torch.randn(16, 6, generator=generator), torch.randn(16, 3, generator=generator)
    return torch.nn.functional.mse_loss(model(inputs), targets)


def weights_of(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def grads_of(module):
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])


def of_all_ranks(tensor):
    ranks = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(ranks, tensor)
    return ranks


def wrap(strategy, module=None, lr=0.1, **options):
    module = net() if module is None else module
    optimizer = tutti.torch.QAdam(module.parameters(), 0.01) if strategy.startswith("qadam") else torch.optim.SGD(
        module.parameters(), lr, momentum=0.9)
    return tutti.torch.DistributedDataParallel(module, optimizer, strategy, **options), optimizer


def train(model, optimizer, rank, steps=3, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def names_schedules(rank):
    os.environ["TUTTI_SCHEDULE"] = "all_reduce=hierarchical,broadcast=hierarchical"  # which need several nodes
    return {}


def trains_with_named_schedules(rank, buffers):
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3))
    model, optimizer = wrap("decentralized", module, buffers=buffers)
    train(model, optimizer, rank)
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("buffers", ["broadcast", "average"])
def test_a_training_works_whatever_schedules_are_named(buffers):
    run_ranks(2, trains_with_named_schedules, buffers, prepare=names_schedules)


class HasNothingOutside(torch.nn.Module):
    """The only parameter outside of a checkpointed segment has no elements."""

    def __init__(self):
        super().__init__()
        self.layers = net()
        self.empty = torch.nn.Parameter(torch.zeros(0))

    def forward(self, inputs):
        nothing = self.empty.sum()  # its backward comes after that of the segment
        return checkpoint.checkpoint(self.layers, inputs.requires_grad_(), use_reentrant=True) + nothing


def trains_with_nothing_outside(rank, strategy):
    model, optimizer = wrap(strategy, HasNothingOutside())
    other, other_optimizer = wrap(strategy)
    train(model, optimizer, rank)
    train(other, other_optimizer, rank)
    assert model.step == 3 and torch.equal(weights_of(model), weights_of(other))


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "gradient_allreduce:average=false"])
def test_a_parameter_without_elements_begins_no_backward(strategy):
    run_ranks(2, trains_with_nothing_outside, strategy)


def accumulates(rank, strategy):
    model, optimizer = wrap(strategy)
    other, other_optimizer = wrap(strategy)
    for step in range(4):
        optimizer.zero_grad()
        with model.no_sync():
            assert not model.require_backward_grad_sync
            (loss_of(model, rank, 2 * step) / 2).backward()
        assert model.require_backward_grad_sync
        (loss_of(model, rank, 2 * step + 1) / 2).backward()
        optimizer.step()
        other_optimizer.zero_grad()
        ((loss_of(other, rank, 2 * step) + loss_of(other, rank, 2 * step + 1)) / 2).backward()
        other_optimizer.step()
    assert model.step == other.step == 4
    statistics = model.take_statistics()
    assert statistics["payload_bytes"] == other.take_statistics()["payload_bytes"]
    assert statistics["engine_cpu_seconds"] >= statistics["engine_waiting_seconds"] >= 0
    assert torch.allclose(weights_of(model), weights_of(other), atol=1e-3), strategy
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", GRADIENTS + WEIGHTS + ["qadam:warmup_steps=2"])
def test_accumulation_exchanges_once_a_step(strategy):
    run_ranks(2, accumulates, strategy)


def has_gradients_of_a_wider_type(rank):
    module = torch.nn.Linear(6, 3).bfloat16()
    for parameter in module.parameters():
        parameter.grad_dtype = torch.float32
    model, _ = wrap("bytegrad", module)
    with pytest.raises(NotImplementedError, match="is BFloat16 and its gradient is Float, but gradients travel in"):
        model(torch.ones(2, 6).bfloat16()).sum().backward()


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="gradients have the type of their parameters")
def test_gradients_of_another_type_are_refused():
    run_ranks(2, has_gradients_of_a_wider_type)


def skips_together(rank, strategy):
    model, optimizer = wrap(strategy)
    scaler = tutti.torch.GradScaler(model, init_scale=1024.0, growth_interval=1000)
    scales = []
    for step in range(6):
        optimizer.zero_grad()
        loss = loss_of(model, rank, step)
        if (step, rank) in ((2, 0), (3, 1)):  # gradients of this rank alone overflow
            loss = loss * math.inf
        before = weights_of(model).clone()
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, weights_of(model)) == (step in (2, 3)), step
        scales.append(scaler.get_scale())
    assert scales == [1024, 1024, 512, 256, 256, 256]
    model.flush()
    model.check_replicas()
    assert weights_of(model).isfinite().all()


@pytest.mark.parametrize("strategy", GRADIENTS + WEIGHTS)
def test_all_ranks_skip_the_steps_in_which_the_gradients_of_one_overflow(strategy):
    run_ranks(2, skips_together, strategy)


def scales_in_vain(rank, strategy, error):
    model, optimizer = wrap(strategy)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(loss_of(model, rank)).backward()
    with pytest.raises(ValueError, match=error):
        scaler.step(optimizer)
    dist.barrier()


@pytest.mark.parametrize("strategy, error", [
    ("decentralized", "tutti.torch.GradScaler"),
    ("qadam:warmup_steps=2", "qadam takes no scaled losses"),
])
def test_a_scaler_of_torch_is_refused_where_it_would_be_wrong(strategy, error):
    run_ranks(2, scales_in_vain, strategy, error)


def has_a_scaler_that_does_nothing(rank):
    model, optimizer = wrap("decentralized")
    scalers = [torch.amp.GradScaler("cpu", enabled=False)]
    if not torch.cuda.is_available():
        scalers.append(torch.amp.GradScaler())  # for CUDA, where there is none: torch does not enable it
    for step, scaler in enumerate(scalers):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert model.step == len(scalers)


def test_a_scaler_that_is_not_enabled_may_be_left_in_a_loop():
    run_ranks(2, has_a_scaler_that_does_nothing)


def residuals_follow_the_scale(rank):
    strategy = "bytegrad:error_feedback=true,codec=uint4_block"
    plain, optimizer = wrap(strategy)
    train(plain, optimizer, rank, 8)
    scaled, optimizer = wrap(strategy)
    scaler = tutti.torch.GradScaler(scaled, init_scale=4.0, growth_interval=2)
    for step in range(8):
        optimizer.zero_grad()
        scaler.scale(loss_of(scaled, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 64
    assert torch.equal(weights_of(plain), weights_of(scaled))  # powers of two change no other bit


def test_residuals_follow_the_scale():
    run_ranks(2, residuals_follow_the_scale)


def clips(rank, strategy):
    model, optimizer = wrap(strategy)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        assert norm > 0.01
        if strategy in GRADIENTS:  # all ranks clip the same gradients
            assert torch.equal(*of_all_ranks(norm.reshape(1)))
        assert grads_of(model).norm() < 0.011
        before = weights_of(model).clone()
        optimizer.step()
        if strategy in GRADIENTS:
            assert (weights_of(model) - before).norm() < 0.1 * 0.011 * (step + 1)
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", GRADIENTS + WEIGHTS)
def test_clipped_gradients_are_what_optimizers_see(strategy):
    run_ranks(2, clips, strategy)


def has_hooks_of_its_own(rank, strategy):
    module = net()
    calls = []
    module[0].weight.register_post_accumulate_grad_hook(lambda p: calls.append(("before", p.grad.clone())))
    model, optimizer = wrap(strategy, module)
    module[0].weight.register_post_accumulate_grad_hook(lambda p: calls.append(("after", p.grad.clone())))

    def replace(parameter):
        parameter.grad.fill_(rank)

    module[0].bias.register_post_accumulate_grad_hook(replace)
    for step in range(3):
        calls.clear()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        assert [name for name, _ in calls] == ["before", "after"]
        mine, other = of_all_ranks(calls[0][1])
        assert not torch.equal(mine, other)  # the hook sees the gradient of its rank,
        if strategy in GRADIENTS:  # and the ranks average what the hook leaves
            assert torch.equal(*of_all_ranks(module[0].weight.grad))
            assert torch.allclose(module[0].weight.grad, (mine + other) / 2, atol=1e-2)
            assert torch.allclose(module[0].bias.grad, torch.full((16,), 0.5), atol=1e-2)
        else:
            assert torch.equal(module[0].bias.grad, torch.full((16,), float(rank)))
        optimizer.step()
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", GRADIENTS + WEIGHTS)
def test_hooks_of_users_live_beside_ours(strategy):
    run_ranks(2, has_hooks_of_its_own, strategy)


class TwoHeads(torch.nn.Module):

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(6, 3) for _ in range(3))

    def forward(self, inputs, head):
        return self.heads[head](inputs)


def leaves_parameters_unused(rank, strategy):
    model, optimizer = wrap(strategy, TwoHeads(), find_unused_parameters=True)
    for _ in range(3):
        before = copy.deepcopy(model.module.heads[2].state_dict())
        optimizer.zero_grad()
        model(torch.ones(1, 6), rank).sum().backward()  # head 0 on rank 0, head 1 on rank 1, head 2 nowhere
        assert model.module.heads[2].weight.grad is None
        if strategy in GRADIENTS:
            for head in (0, 1):
                assert torch.allclose(model.module.heads[head].weight.grad, torch.full((3, 6), 0.5), atol=1e-2)
        else:
            assert model.module.heads[1 - rank].weight.grad is None
        optimizer.step()
        assert all(torch.equal(value, before[key]) for key, value in model.module.heads[2].state_dict().items())
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", GRADIENTS + ["decentralized"])
def test_a_parameter_that_no_rank_used_keeps_no_gradient(strategy):
    run_ranks(2, leaves_parameters_unused, strategy)


class WithoutGradient(torch.autograd.Function):
    """Uses a parameter, and gives the parameter no gradient."""

    @staticmethod
    def forward(context, inputs, parameter):
        return inputs + parameter

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Shifts(torch.nn.Module):
    """A layer, and a shift that gets a gradient only where ``learns``."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(6, 3)
        self.shift = torch.nn.Parameter(torch.ones(3))

    def forward(self, inputs, learns):
        between = self.layer(inputs)
        return between + self.shift if learns else WithoutGradient.apply(between, self.shift)


def leaves_a_gradient_undefined(rank, strategy, wrapped, find_unused):
    if wrapped:
        model, optimizer = wrap(strategy, Shifts(), find_unused_parameters=find_unused)
    else:  # what stock DistributedDataParallel does
        model = torch.nn.parallel.DistributedDataParallel(Shifts(), find_unused_parameters=find_unused)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    grads = []
    for learning in ((), (1,), (0, 1), ()):  # the ranks whose shift gets a gradient
        optimizer.zero_grad()
        model(torch.ones(1, 6), rank in learning).sum().backward()
        grad = model.module.shift.grad
        grads.append(None if grad is None else grad.tolist())
        optimizer.step()
    if wrapped:
        model.flush()
        model.check_replicas()
    return grads, weights_of(model).tolist()


@pytest.mark.parametrize("find_unused", [False, True])
def test_a_gradient_that_is_undefined_is_zero_as_in_ddp(find_unused):
    found = run_ranks(2, leaves_a_gradient_undefined, "gradient_allreduce", True, find_unused)
    assert found == run_ranks(2, leaves_a_gradient_undefined, "gradient_allreduce", False, find_unused)
    none = None if find_unused else [0.0] * 3
    assert found[0] == found[1] and found[0][0] == [none, [0.5] * 3, [1.0] * 3, none]


@pytest.mark.parametrize("strategy", ["bytegrad", "decentralized", "qadam:warmup_steps=2"])
@pytest.mark.parametrize("find_unused", [False, True])
def test_a_gradient_that_is_undefined_with_other_strategies(strategy, find_unused):
    run_ranks(2, leaves_a_gradient_undefined, strategy, True, find_unused)


def has_two_optimizers(rank):
    one, optimizer = wrap("decentralized")
    train(one, optimizer, rank)
    module = net()
    optimizers = [torch.optim.SGD(module[0].parameters(), 0.1, momentum=0.9)]
    model = tutti.torch.DistributedDataParallel(module, optimizers, "decentralized")
    optimizers.append(torch.optim.SGD(module[2].parameters(), 0.1, momentum=0.9))
    model.add_optimizer(optimizers[1])
    for step in range(3):
        model.zero_grad()
        loss_of(model, rank, step).backward()
        with model.one_step():
            for each in optimizers:
                each.step()
    assert model.step == 3
    assert torch.equal(weights_of(one), weights_of(model))
    model.zero_grad()
    loss_of(model, rank).backward()
    for each in optimizers:
        each.step()
    assert model.step == 5
    model.flush()
    model.check_replicas()


def test_several_optimizers_make_one_step_together_or_one_each():
    run_ranks(2, has_two_optimizers)


def repeats_a_step(rank):
    module = net()

    class Fails(torch.optim.SGD):
        fails = False

        def step(self, closure=None):
            if self.fails:
                raise KeyError("no step today")
            return super().step(closure)

    optimizer = Fails(module.parameters(), 0.1)
    model = tutti.torch.DistributedDataParallel(module, optimizer, "decentralized")
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.fails = step == 1
        if optimizer.fails:
            with pytest.raises(KeyError):
                optimizer.step()
            optimizer.fails = False
        optimizer.step()
    assert model.step == 4
    model.flush()
    model.check_replicas()


def test_a_step_that_an_exception_ended_can_be_repeated():
    run_ranks(2, repeats_a_step)


def is_lazy(rank):
    with pytest.raises(ValueError, match="weight is not initialized"):
        wrap("gradient_allreduce", torch.nn.LazyLinear(3), lr=0.1)


def test_lazy_parameters_are_refused():
    run_ranks(2, is_lazy)


def calls_beside_others(rank):
    """The model's calls go by a communicator of its own: the user's calls on the same group may come in between."""
    group = dist.new_group([0, 2]) if rank != 1 else dist.new_group([0, 2])
    if rank == 1:
        return
    model, optimizer = wrap("decentralized:communication_interval=2", process_group=group)
    for step in range(6):
        optimizer.zero_grad()
        work = dist.all_reduce(total := torch.tensor([1.0 + rank]), group=group, async_op=True)
        loss_of(model, rank, step).backward()
        work.wait()
        assert total.item() == 4
        optimizer.step()
    model.flush()
    model.check_replicas()


def test_a_model_in_a_group():
    run_ranks(3, calls_beside_others)


def async_pauses(rank):
    model, optimizer = wrap("async:sync_interval_ms=1,warmup_steps=2")
    train(model, optimizer, rank)
    model.pause()
    model.resume()
    train(model, optimizer, rank, 3 + 2 * rank)  # each rank at its own pace
    assert model.step == 6 + 2 * rank
    assert model.agree_on_overflow(rank == 1) == (rank == 1)
    model.stop()
    model.flush()
    model.check_replicas()


def test_async_runs_at_the_pace_of_each_rank():
    run_ranks(2, async_pauses)


def dies_in_async(rank):
    """The others hear of a rank that is killed in a step, also where they wait for nobody."""
    model, optimizer = wrap("async:sync_interval_ms=1,warmup_steps=2")
    train(model, optimizer, rank, 5)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        while time.monotonic() < begin + 20:
            train(model, optimizer, rank)
    return time.monotonic() - begin


def test_async_that_lost_a_rank():
    assert run_ranks(2, dies_in_async, may_die=[1])[0] < 20  # seconds; the timeout is 30


class BadBatch(Exception):
    pass


class Recomputed(torch.autograd.Function):
    """A segment whose backward computes it anew, in a backward of its own, and raises then where it is told to."""

    @staticmethod
    def forward(ctx, inputs, segment, blows):
        ctx.save_for_backward(inputs)
        ctx.segment, ctx.blows = segment, blows
        return segment(inputs)

    @staticmethod
    def backward(ctx, gradients):
        inputs = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.segment(inputs).backward(gradients)
        if ctx.blows:
            raise BadBatch
        return inputs.grad, None, None


class Segments(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = torch.nn.Linear(6, 16), torch.nn.Linear(16, 3)

    def forward(self, inputs, blows):
        return Recomputed.apply(Recomputed.apply(inputs, self.first, False), self.second, blows)


def repeats_nested_backwards(rank):
    model, optimizer = wrap("gradient_allreduce", Segments())
    kept = []  # the losses keep the graph of the backward that has raised
    for step in range(3):
        for blows in (True, False):
            inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(10 * step + rank), requires_grad=True)
            optimizer.zero_grad()
            kept.append(model(inputs, blows).square().mean())
            if blows:
                with pytest.raises(BadBatch):
                    kept[-1].backward()
            else:
                kept[-1].backward()
        optimizer.step()
    model.check_replicas()


def test_a_backward_of_nested_ones_may_be_repeated_while_its_graph_is_kept():
    run_ranks(2, repeats_nested_backwards)


def copies_and_drops(rank):
    model, optimizer = wrap("low_precision_decentralized")
    train(model, optimizer, rank)
    average = copy.deepcopy(model.module)  # an average of weights is made of a copy
    loss_of(average, rank).backward()
    gone = weakref.ref(model)
    gc.disable()
    module = model.module
    del model
    assert gone() is None  # the optimizer, its hooks and the hooks of gradients keep no model alive
    gc.enable()
    loss_of(module, rank).backward()
    optimizer.step()
    again, optimizer = wrap("decentralized", module)
    train(again, optimizer, rank)


def test_a_dropped_model_leaves_its_module_free():
    run_ranks(2, copies_and_drops)


@pytest.mark.parametrize("strategy",
                         ["decentralized", "async:warmup_steps=1,sync_interval_ms=1", "qadam:warmup_steps=1"])
def test_a_program_that_ends_with_a_model_ends_in_order(strategy, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import sys
sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
import torch.distributed as dist
from replicas_test import train, wrap
dist.init_process_group("tutti")
model, optimizer = wrap({strategy!r})
train(model, optimizer, dist.get_rank())
print("trained")
""")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and run.stdout.count("trained") == 2, run.stderr
