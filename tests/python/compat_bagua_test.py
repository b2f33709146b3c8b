"""What old scripts call as model.with_bagua: the model trains by each of Bagua's algorithms, and stays itself."""

import copy
import gc
import io
import math
import pickle
import weakref

import numpy
import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import run_ranks
from tutti.compat.bagua import torch_api as bagua
from tutti.compat.bagua.torch_api import algorithms  # gives torch.nn.Module its with_bagua

ALGORITHMS = {
    "gradient_allreduce": algorithms.gradient_allreduce.GradientAllReduceAlgorithm,
    "bytegrad": algorithms.bytegrad.ByteGradAlgorithm,
    "decentralized": algorithms.decentralized.DecentralizedAlgorithm,
    "low_precision_decentralized": algorithms.decentralized.LowPrecisionDecentralizedAlgorithm,
    "async": lambda: algorithms.async_model_average.AsyncModelAverageAlgorithm(sync_interval_ms=1),
    "qadam": None,
}


def net():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def train_steps(rank, model, optimizer, steps=80):
    """The losses of the first and the last step."""
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(steps):
        inputs = torch.randn(16, 6, generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True) / 3)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses[0], losses[-1]


def trains(rank, name):
    torch.manual_seed(rank)  # ranks begin with different weights
    model = net()
    if name == "qadam":
        optimizer = algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=10)
        algorithm = algorithms.q_adam.QAdamAlgorithm(optimizer)
    else:
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
        algorithm = ALGORITHMS[name]()
    keys = list(model.state_dict())
    assert model.with_bagua([optimizer], algorithm) is model
    first, last = train_steps(rank, model, optimizer)
    assert last < 0.5 * first, (first, last)
    assert list(model.state_dict()) == keys and list(model.named_modules())[0][1] is model
    if name == "async":
        model.bagua_algorithm.abort(model)
        model.bagua_algorithm.resume(model)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    every = [torch.empty_like(weights) for _ in range(2)]
    dist.all_gather(every, weights)
    if name in ("gradient_allreduce", "bytegrad", "qadam"):
        assert torch.equal(*every)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_model_trains(name):
    run_ranks(2, trains, name)


def has_a_group_already(rank, backend):
    group = dist.group.WORLD
    if backend == "tutti":
        bagua.init_process_group()
        assert dist.group.WORLD is group
    else:
        with pytest.raises(ValueError, match=r'on another backend before.*: drop .*group\(…\).* give it "tutti"$'):
            bagua.init_process_group()


@pytest.mark.parametrize("backend", ["tutti", "gloo", None])
def test_a_default_group_that_the_script_has_made_before(backend):
    run_ranks(1, has_a_group_already, backend, backend=backend)


def resumes_on_rank_0(rank, name):
    torch.manual_seed(1)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.5)
    if rank == 0:  # which has a checkpoint
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.02
    model.with_bagua([optimizer], ALGORITHMS[name]())
    assert optimizer.param_groups[0]["lr"] == 0.02
    assert optimizer.state[model[0].weight]["momentum_buffer"].abs().max() > 0
    train_steps(rank, model, optimizer, steps=3)
    return [parameter.tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("name", ["gradient_allreduce", "bytegrad"])
def test_optimizers_become_those_of_rank_0(name):
    mine, others = run_ranks(2, resumes_on_rank_0, name)
    assert mine == others


def resumes_qadam_on_rank_0(rank, has_state):
    torch.manual_seed(1)

    def fresh():
        model = net()
        return model, algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=2)

    before, optimizer = fresh()
    before.with_bagua([optimizer], algorithms.q_adam.QAdamAlgorithm(optimizer))
    train_steps(rank, before, optimizer, steps=3)
    optimizer.param_groups[0].update(lr=0.01, betas=(0.8, 0.99))
    model, resumed = fresh()
    if rank == 0:
        if has_state:
            resumed.load_state_dict(optimizer.state_dict())
        resumed.param_groups[0].update(lr=0.01, betas=(0.8, 0.99))
    model.with_bagua([resumed], algorithms.q_adam.QAdamAlgorithm(resumed))
    assert resumed.param_groups[0]["lr"] == 0.01 and resumed.param_groups[0]["betas"] == (0.8, 0.99)
    assert resumed.frozen == has_state
    assert not has_state or torch.equal(state_of(resumed), state_of(optimizer))
    assert all(state["qadam"].dtype == torch.uint8 for state in resumed.state.values())
    train_steps(rank, model, resumed, steps=3)
    model.bagua_ddp.check_replicas()


@pytest.mark.parametrize("has_state", [True, False])
def test_qadam_becomes_that_of_rank_0(has_state):
    run_ranks(2, resumes_qadam_on_rank_0, has_state)


def has_options_of_its_own(rank):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), numpy.float64(0.1), momentum=0.5)
    optimizer.param_groups[0]["scale_of"] = lambda step: step
    group = optimizer.param_groups[0]
    model.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    assert optimizer.param_groups[0] is group, "an optimizer that is equal on all ranks is left as it is"
    train_steps(rank, model, optimizer, steps=1)
    mine = group["scale_of"]
    group["lr"] = numpy.float64(0.01 * (1 + rank))
    model.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    assert optimizer.param_groups[0]["lr"] == 0.01 and optimizer.param_groups[0]["scale_of"] is mine
    # A tensor keeps its place, where a CUDA graph reads it.
    rate = torch.tensor(0.1 * (1 + rank))
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    assert optimizer.param_groups[0]["lr"] is rate and rate == torch.tensor(0.1)


def test_optimizers_keep_options_that_ranks_cannot_send():
    run_ranks(2, has_options_of_its_own)


def has_another_optimizer_on_rank_1(rank):
    model = net()
    parameters = list(model.parameters())
    groups = [{"params": parameters}] if rank == 0 else [{"params": parameters[:2]}, {"params": parameters[2:]}]
    with pytest.raises(ValueError, match="different number of parameter groups"):
        model.with_bagua([torch.optim.SGD(groups, 0.1)], ALGORITHMS["bytegrad"]())


def test_an_optimizer_that_does_not_fit_is_an_error_on_all_ranks():
    run_ranks(2, has_another_optimizer_on_rank_1)


def is_a_module(rank):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([optimizer], algorithms.bytegrad.ByteGradAlgorithm())
    # A copy belongs to nobody: this rank alone trains one, and nobody waits.
    alone = copy.deepcopy(model)
    if rank == 0:
        train_steps(rank, alone, torch.optim.SGD(alone.parameters(), 0.1), steps=2)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded[0].weight, model[0].weight)
    # Another algorithm replaces the first, for another optimizer.
    another = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([another], algorithms.gradient_allreduce.GradientAllReduceAlgorithm())
    train_steps(rank, model, another, steps=3)
    assert isinstance(model.bagua_algorithm, algorithms.gradient_allreduce.GradientAllReduceAlgorithm)
    with pytest.raises(TypeError, match="with_bagua: algorithm is a str; give an algorithm of bagua.torch_api"):
        model.with_bagua([another], "bytegrad")
    with pytest.raises(ValueError, match="this Sequential is not trained by an algorithm: call model.with_bagua"):
        algorithms.async_model_average.AsyncModelAverageAlgorithm().abort(alone)


def test_the_model_stays_a_module():
    run_ranks(2, is_a_module)


def is_dropped(rank):
    gc.disable()
    for name in ("bytegrad", "decentralized", "async"):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model.with_bagua([optimizer], ALGORITHMS[name]())
        train_steps(rank, model, optimizer, steps=2)
        wrapper = weakref.ref(model.bagua_ddp)
        del model
        assert wrapper() is None
        if rank == 0:
            optimizer.step()  # alone: nobody waits


def test_a_model_ends_when_it_is_dropped():
    run_ranks(2, is_dropped)


def keeps_the_wrapper_alone(rank, name):
    model = net()
    parameters = list(model.parameters())
    if name == "qadam":
        optimizer = algorithms.q_adam.QAdamOptimizer(parameters, lr=0.02, warmup_steps=10)
        algorithm = algorithms.q_adam.QAdamAlgorithm(optimizer)
    else:
        optimizer, algorithm = torch.optim.SGD(parameters, 0.1), ALGORITHMS[name]()
    wrapper = model.with_bagua([optimizer], algorithm).bagua_ddp
    train_steps(rank, model, optimizer, steps=2)
    del model
    gc.collect()
    for use in (wrapper.flush, wrapper.state_dict, lambda: wrapper.step, lambda: wrapper(torch.ones(1, 6))):
        with pytest.raises(ValueError, match="the model of this wrapper is gone: keep the model"):
            use()
    if name == "qadam":
        with pytest.raises(ValueError, match="QAdamOptimizer belongs to a model, whose wrapper is gone, and with it m and v"):
            optimizer.step()
    elif rank == 0:  # alone: nobody waits
        parameters[0].square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_wrapper_ends_with_its_model(name):
    run_ranks(2, keeps_the_wrapper_alone, name)


def modules_in_attributes(module):
    return 1 + sum(modules_in_attributes(value) for value in [*vars(module).values(), *module._modules.values()]
                   if isinstance(value, torch.nn.Module))


def is_used_by_torch(rank):
    assert net().bagua_ddp is None
    model = net()
    model.with_bagua([torch.optim.SGD(model.parameters(), 0.1)], ALGORITHMS["bytegrad"]())
    assert modules_in_attributes(model) == 4
    for copies in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied: copy model.module, or save model.state_dict()"):
            copies(model.bagua_ddp)
    inputs = torch.ones(2, 6)
    outputs = model(inputs)
    compiled = torch.compile(model, backend="eager")
    for other in (torch.jit.script(model), torch.jit.trace(model, inputs), torch.fx.symbolic_trace(model), compiled):
        assert torch.equal(other(inputs), outputs)
    assert compiled.bagua_ddp is model.bagua_ddp
    tutti.torch.GradScaler(compiled)
    tutti.torch.GradScaler(model.bagua_ddp)  # which has no wrapper itself


def test_a_model_with_a_wrapper_is_any_module_to_torch():
    run_ranks(1, is_used_by_torch)


def uses_its_wrapper(rank):
    torch.manual_seed(1)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    algorithm = ALGORITHMS["decentralized"]()
    model.with_bagua([optimizer], algorithm)
    wrapper = model.bagua_ddp
    assert wrapper.module is model and "module.0.weight" in wrapper.state_dict()
    train_steps(rank, model, optimizer, steps=2)
    wrapper.flush()
    wrapper.check_replicas()
    model.load_state_dict({name: value + rank for name, value in model.state_dict().items()})
    wrapper.broadcast()
    wrapper.check_replicas()
    assert copy.deepcopy(model).bagua_ddp is None
    model.with_bagua([optimizer], algorithm)
    assert model.bagua_ddp is not wrapper
    for use in (wrapper.flush, lambda: wrapper.step, lambda: wrapper(torch.ones(1, 6))):
        with pytest.raises(ValueError, match="this wrapper ended when with_bagua was called again: use model.bagua_ddp"):
            use()
    train_steps(rank, model, optimizer, steps=2)
    model.with_bagua([optimizer], ALGORITHMS["gradient_allreduce"]())
    optimizer.zero_grad()
    with model.bagua_ddp.no_sync():
        model(torch.full((1, 6), 1.0 + rank)).sum().backward()
    return model[2].weight.grad.tolist()


def test_the_wrapper_of_a_model():
    mine, others = run_ranks(2, uses_its_wrapper)
    assert mine != others


def trains_a_shallow_copy(rank):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    other = copy.copy(model)
    with pytest.raises(ValueError, match="is the module wrapped twice[?] The first wrapper must be gone"):
        other.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    train_steps(rank, model, optimizer, steps=3)
    model.bagua_ddp.check_replicas()
    del model
    other.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    train_steps(rank, other, optimizer, steps=3)
    other.bagua_ddp.check_replicas()


def test_a_shallow_copy_does_not_end_the_exchange_of_the_model():
    run_ranks(2, trains_a_shallow_copy)


def fails_to_replace(rank):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    former = ALGORITHMS["bytegrad"]()
    model.with_bagua([optimizer], former)
    scaler = tutti.torch.GradScaler(model)
    for wrong in (3, former), ([optimizer, "SGD"], former), ([optimizer], "bytegrad"):  # seen before the former ends
        with pytest.raises(TypeError):
            model.with_bagua(*wrong)
    assert model.bagua_algorithm is former
    train_steps(rank, model, optimizer, steps=1)
    qadam = algorithms.q_adam.QAdamOptimizer(model.parameters(), warmup_steps=5)
    with pytest.raises(ValueError, match="needs tutti.torch.QAdam, not SGD") as error:
        model.with_bagua([optimizer], algorithms.q_adam.QAdamAlgorithm(qadam))
    assert not hasattr(model, "bagua_algorithm") and error.tb is not None  # which keeps the wrapper that failed
    refused = "no algorithm trains this Sequential since with_bagua failed: call it again .*needs tutti.torch.QAdam, not SGD"
    for use in (lambda: train_steps(rank, model, optimizer, steps=1), model.bagua_ddp.flush,
                lambda: scaler.scale(torch.ones(1))):
        with pytest.raises(ValueError, match=refused):
            use()
    if rank == 0:  # a copy belongs to nobody
        alone = copy.deepcopy(model)
        train_steps(rank, alone, torch.optim.SGD(alone.parameters(), 0.1), steps=1)
    model.with_bagua([qadam], algorithms.q_adam.QAdamAlgorithm(qadam))
    train_steps(rank, model, qadam, steps=7)
    model.bagua_ddp.check_replicas()


def test_an_algorithm_that_cannot_replace_the_former():
    run_ranks(2, fails_to_replace)


def has_two_optimizers(rank, name):
    torch.manual_seed(1)
    model = net()
    optimizers = [torch.optim.SGD(layer.parameters(), 0.1) for layer in (model[0], model[2])]
    model.with_bagua(optimizers, ALGORITHMS[name]())
    model(torch.ones(1, 6)).sum().backward()
    if name == "bytegrad":  # counts no steps
        for optimizer in optimizers:
            optimizer.step()
        return
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=f"with_bagua has 2 optimizers, and each step of one .* of {name}: .*one_step()"):
        optimizers[0].step()
    assert all(map(torch.equal, before, model.parameters()))
    for step in range(1, 4):
        model(torch.ones(1, 6)).sum().backward()
        with model.bagua_ddp.one_step():
            for optimizer in optimizers:
                optimizer.step()
        assert model.bagua_ddp.step == step


@pytest.mark.parametrize("name", ["bytegrad", "decentralized", "low_precision_decentralized", "async"])
def test_the_steps_of_several_optimizers_are_one_step(name):
    run_ranks(2, has_two_optimizers, name)


def replaces_qadam(rank):
    model = net()
    optimizer = algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=2)
    model.with_bagua([optimizer], algorithms.q_adam.QAdamAlgorithm(optimizer))
    train_steps(rank, model, optimizer, steps=3)
    before = optimizer.state_dict()["state"][0]["qadam"]
    model.with_bagua([optimizer], algorithms.q_adam.QAdamAlgorithm(optimizer))
    assert optimizer.frozen and torch.equal(optimizer.state_dict()["state"][0]["qadam"], before)
    train_steps(rank, model, optimizer, steps=3)
    another = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([another], algorithms.gradient_allreduce.GradientAllReduceAlgorithm())
    train_steps(rank, model, another, steps=3)
    with pytest.raises(ValueError, match="QAdamOptimizer belongs to a model"):
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())


def test_another_algorithm_after_qadam():
    run_ranks(2, replaces_qadam)


def state_of(optimizer):
    """m and v of all parameters."""
    return max((state["qadam"] for state in optimizer.state_dict()["state"].values()), key=torch.numel)


def freezes_layers(rank, warmup_steps):
    model = net()
    optimizer = algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=warmup_steps)

    def trains(*layers):
        for layer in model:
            layer.requires_grad_(layer in layers)
        model.with_bagua([optimizer], algorithms.q_adam.QAdamAlgorithm(optimizer))

    trains(model[0], model[2])
    train_steps(rank, model, optimizer, steps=3)
    before = state_of(optimizer)
    trains(model[2])
    trains(model[0], model[2])
    assert torch.equal(state_of(optimizer), before)
    trains(model[2])
    frozen, trained = (model[at].weight.detach().clone() for at in (0, 2))
    train_steps(rank, model, optimizer, steps=3)
    assert torch.equal(model[0].weight, frozen) and not torch.equal(model[2].weight, trained)
    trains(model[0], model[2])
    train_steps(rank, model, optimizer, steps=3)
    assert optimizer.frozen == (warmup_steps < 9) and not torch.equal(model[0].weight, frozen)


@pytest.mark.parametrize("warmup_steps", [2, 100])
def test_momentum_of_qadam_follows_parameters_while_others_are_frozen(warmup_steps):
    run_ranks(2, freezes_layers, warmup_steps)


def unfreezes_after_the_warm_up(rank):
    model = net()
    model[0].requires_grad_(False)
    optimizer = algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=2)
    algorithm = algorithms.q_adam.QAdamAlgorithm(optimizer)
    model.with_bagua([optimizer], algorithm)
    train_steps(rank, model, optimizer, steps=3)
    model[0].requires_grad_(True)
    with pytest.raises(ValueError, match="0.weight was not trained when the warm-up of the state ended.*another QAdam"):
        model.with_bagua([optimizer], algorithm)
    model[0].requires_grad_(False)
    model.with_bagua([optimizer], algorithm)
    assert optimizer.frozen
    train_steps(rank, model, optimizer, steps=3)


def test_a_layer_that_is_unfrozen_after_the_warm_up_of_qadam():
    run_ranks(2, unfreezes_after_the_warm_up)


def wraps_copies(rank):
    model = net()
    original = model, algorithms.q_adam.QAdamOptimizer(model.parameters(), lr=0.02, warmup_steps=7)
    for module, optimizer in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert "warmup_steps=7" in algorithms.q_adam.QAdamAlgorithm(optimizer).strategy
        wrapper = tutti.torch.DistributedDataParallel(module, optimizer, "qadam")
        assert "warmup_steps=7" in wrapper.strategy


def test_copies_of_qadam_know_the_steps_of_the_warm_up():
    run_ranks(2, wraps_copies)


def scales_losses(rank, name):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match="GradScaler is for .* a module after with_bagua, not Sequential"):
        tutti.torch.GradScaler(model)
    model.with_bagua([optimizer], ALGORITHMS[name]())
    scaler = tutti.torch.GradScaler(model, init_scale=1024.0, growth_interval=1000)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(torch.full((2, 6), 1.0 + rank)).square().mean()
        if (step, rank) == (2, 0):  # gradients of this rank alone overflow
            loss = loss * math.inf
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512 and model[0].weight.isfinite().all()


@pytest.mark.parametrize("name", ["bytegrad", "decentralized", "low_precision_decentralized"])
def test_all_ranks_skip_the_steps_in_which_the_gradients_of_one_overflow(name):
    run_ranks(2, scales_losses, name)


def keeps_its_scaler(rank):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([optimizer], ALGORITHMS["bytegrad"]())
    scaler = tutti.torch.GradScaler(model, init_scale=1024.0)
    model.with_bagua([optimizer], ALGORITHMS["decentralized"]())
    loss = model(torch.full((2, 6), 1.0 + rank)).sum() * (math.inf if rank == 0 else 1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512 and model[0].weight.isfinite().all()


def test_a_scaler_goes_on_with_another_algorithm():
    run_ranks(2, keeps_its_scaler)


def keeps_an_expert(rank):
    model = net()
    torch.nn.init.constant_(model[0].weight, rank)
    model._bagua_params_and_buffers_to_ignore = ["0.weight"]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.with_bagua([optimizer], algorithms.gradient_allreduce.GradientAllReduceAlgorithm())
    assert model[0].weight.eq(rank).all()
    train_steps(rank, model, optimizer, steps=1)
    return model[0].weight.tolist(), model[2].weight.tolist()


def test_parameters_that_the_model_ignores():
    (mine, shared), (others, shared_by_others) = run_ranks(2, keeps_an_expert)
    assert mine != others and shared == shared_by_others


def replaces_its_head(rank, name):
    model = net()
    algorithm = ALGORITHMS[name]()
    model.with_bagua([optimizer := torch.optim.SGD(model.parameters(), 0.1)], algorithm)
    train_steps(rank, model, optimizer, steps=1)
    model[2] = torch.nn.Linear(8, 1)
    optimizer.add_param_group({"params": model[2].parameters()})
    with pytest.raises(ValueError, match="parameter 2.weight was replaced after the module was wrapped"):
        train_steps(rank, model, optimizer, steps=1)
    model.with_bagua([optimizer], algorithm)
    train_steps(rank, model, optimizer, steps=1)
    model.append(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="parameter 3.weight was registered"):
        optimizer.step(lambda: model(torch.ones(1, 6)).sum().backward())


@pytest.mark.parametrize("name", ["decentralized", "low_precision_decentralized", "async"])
def test_parameters_that_change_after_with_bagua(name):
    run_ranks(2, replaces_its_head, name)
