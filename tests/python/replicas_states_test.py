"""Checkpoints of tutti.torch.DistributedDataParallel, and what it refuses."""

import io
import math
import os
import re
import time

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import on_two_nodes, run_ranks
from replicas_test import loss_of, net, train, weights_of, wrap


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def loaded(file):
    return torch.load(io.BytesIO(file), weights_only=True)


def goes_on_bit_for_bit(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 4)
    files = saved(model.state_dict()), saved(optimizer.state_dict())
    train(model, optimizer, rank, 4, first=4)

    other, other_optimizer = wrap(strategy, torch.nn.Sequential(*net()))
    train(other, other_optimizer, rank, 1, first=9)
    other_optimizer.load_state_dict(loaded(files[1]))
    other.load_state_dict(loaded(files[0]))
    assert other.step == 4
    train(other, other_optimizer, rank, 4, first=4)
    assert torch.equal(weights_of(model), weights_of(other))
    assert model.step == other.step == 8


@pytest.mark.parametrize("strategy", [
    "bytegrad:error_feedback=true", "decentralized:peer_selection_mode=shift_one,communication_interval=3",
    "low_precision_decentralized", "qadam:warmup_steps=2"
])
def test_a_checkpoint_goes_on_bit_for_bit(strategy):
    run_ranks(2, goes_on_bit_for_bit, strategy)


def fail(rank):
    # The ranks meet through the store: the first to leave a barrier would abort it on the others.
    store = dist.distributed_c10d._get_default_store()
    store.set(f"trained on {rank}", "")
    store.wait(["trained on 0", "trained on 1"])
    tutti.torch._core().abort_all_groups("enough")


def saves_after_a_failure(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 2)
    assert model.strategy_state()["state"][f"rank {rank} of 2"].numel() > 0
    if strategy == "low_precision_decentralized":  # exchanges once the optimizer has stepped
        optimizer.register_step_pre_hook(lambda *_: fail(rank))
    else:
        fail(rank)
    with pytest.raises(RuntimeError, match="enough"):
        train(model, optimizer, rank, 1)
    with pytest.raises(RuntimeError, match="the state cannot be saved: .*enough"):
        model.strategy_state()
    with pytest.warns(UserWarning, match="cannot be saved: .*enough.* weights alone, which may be half exchanged"):
        state = model.state_dict()
    assert state["_extra_state"] is None
    torch.nn.Sequential(*net()).load_state_dict(
        {name.removeprefix("module."): value for name, value in state.items() if name != "_extra_state"})


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_the_weights_alone_are_saved_after_an_exchange_that_failed(strategy):
    run_ranks(2, saves_after_a_failure, strategy)


def saves_after_calls_that_do_not_match(rank):
    model, _ = wrap("bytegrad:error_feedback=true")
    with pytest.raises((ValueError, RuntimeError), match="rank"):
        model.check_replicas() if rank == 0 else loss_of(model, rank).backward()
    if rank == 1:  # which was in an exchange
        with pytest.warns(UserWarning, match="cannot be saved: .*weights alone"):
            assert model.state_dict()["_extra_state"] is None


def test_the_weights_alone_are_saved_after_calls_that_do_not_match():
    run_ranks(2, saves_after_calls_that_do_not_match)


def saves_after_a_broadcast_that_failed_in_the_middle(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 2)
    if rank == 0:
        for call in ("broadcast", "Broadcast"):  # the first calls of broadcast(), after which rank 1 waits for weights
            model._replicas.agree_on_mistake(call, "")
        with pytest.raises((ValueError, RuntimeError), match="rank 1 is in 'state', rank 0 in 'another call'"):
            model._replicas.agree_on_mistake("another call", "")
        return
    with pytest.raises((ValueError, RuntimeError), match="rank 1 is in 'state', rank 0 in 'another call'"):
        model.broadcast()
    with pytest.warns(UserWarning, match="cannot be saved: .* weights alone, which may be half exchanged"):
        assert model.state_dict()["_extra_state"] is None


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "decentralized"])
def test_the_weights_alone_are_saved_after_a_broadcast_that_failed_in_the_middle(strategy):
    run_ranks(2, saves_after_a_broadcast_that_failed_in_the_middle, strategy)


def saves_after_a_load_in_which_a_rank_died(rank):
    model, optimizer = wrap("low_precision_decentralized")
    train(model, optimizer, rank, 2)
    good = loaded(saved(model.state_dict()))
    if rank == 1:
        # Rank 0 may still be at the end of the call before.
        torch.nn.Module.load_state_dict = lambda *_: (time.sleep(0.5), os._exit(3))
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        model.load_state_dict(good)
    with pytest.raises(RuntimeError, match="the state cannot be saved: the last load_state_dict failed"):
        model.strategy_state()
    with pytest.warns(UserWarning, match="load_state_dict failed.* weights alone, which may be half exchanged"):
        assert model.state_dict()["_extra_state"] is None


def test_the_weights_alone_are_saved_after_a_load_in_which_a_rank_died():
    run_ranks(2, saves_after_a_load_in_which_a_rank_died, may_die=[1])


def saves(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 4)
    model.flush()
    return saved(model.state_dict()), saved(optimizer.state_dict())


def loads_states_of_three(rank, strategy, files):
    model, optimizer = wrap(strategy)
    optimizer.load_state_dict(loaded(files[0][1]))
    states = [loaded(model_file) for model_file, _ in files]
    model.load_state_dict(states)
    assert model.step == 4
    assert all(torch.equal(value, states[0][f"module.{key}"]) for key, value in model.module.state_dict().items())
    train(model, optimizer, rank, 2, first=4)
    model.flush()
    model.check_replicas()
    with pytest.raises(ValueError):
        model.load_state_dict(states[:2] + states[:1])  # the state of rank 0 twice
    with pytest.raises(ValueError, match="empty"):
        model.load_state_dict([])


@pytest.mark.parametrize("strategy", [
    "bytegrad:error_feedback=true,codec=uint4_block", "decentralized", "low_precision_decentralized",
    "async:warmup_steps=1", "qadam:warmup_steps=2"
])
def test_a_checkpoint_of_three_ranks_goes_on_on_two(strategy):
    run_ranks(2, loads_states_of_three, strategy, run_ranks(3, saves, strategy))


def loads_the_file_of_rank_0(rank, strategy, file):
    model, optimizer = wrap(strategy)
    model.load_state_dict(loaded(file))
    assert model.step == 4
    model.check_replicas()
    train(model, optimizer, rank, 2, first=4)
    assert model.step == 6


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "async:warmup_steps=1", "qadam:warmup_steps=2"])
def test_the_file_of_rank_0_is_enough_where_the_strategy_has_no_state(strategy):
    file = run_ranks(3, saves, strategy)[0][0]
    for size in (1, 2, 3):
        run_ranks(size, loads_the_file_of_rank_0, strategy, file)


def starts_anew_from_the_file_of_rank_0(rank, strategy, file):
    model, optimizer = wrap(strategy)
    state = loaded(file)
    with pytest.raises(ValueError, match="or the states of all 3 ranks; or leave .* remove the key _extra_state"):
        model.load_state_dict(state)
    del state["_extra_state"]
    model.load_state_dict(state)
    train(model, optimizer, rank, 2)


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_the_file_of_rank_0_is_refused_where_others_have_states(strategy):
    run_ranks(3, starts_anew_from_the_file_of_rank_0, strategy, run_ranks(3, saves, strategy)[0][0])


def goes_on_where_four_states_were_saved(rank, strategy, files):
    model, optimizer = wrap(strategy)
    model.load_state_dict([loaded(model_file) for model_file, _ in files])
    assert model.step == 4
    train(model, optimizer, rank, 2, first=4)
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_a_checkpoint_of_two_nodes_goes_on_on_one(strategy):
    files = run_ranks(4, saves, strategy, prepare=on_two_nodes())
    for prepare in (None, on_two_nodes()):
        run_ranks(4, goes_on_where_four_states_were_saved, strategy, files, prepare=prepare)


def cannot_load_on_one_rank(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 2)
    good = model.state_dict()
    bad = {key: value for key, value in good.items() if rank != 1 or not key.endswith("weight")}
    with pytest.raises(RuntimeError if rank == 1 else ValueError, match="Missing key"):
        model.load_state_dict(bad)
    model.load_state_dict(good)
    train(model, optimizer, rank, 2, first=2)


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "decentralized"])
def test_what_one_rank_cannot_load_is_an_error_of_all(strategy):
    run_ranks(2, cannot_load_on_one_rank, strategy)


def trains_on_after_a_load_that_failed(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 2)
    good = loaded(saved(model.state_dict()))
    train(model, optimizer, rank, 2, first=2)
    damaged = {**good, "_extra_state": {"state": {"of rank 1": torch.zeros(9, dtype=torch.uint8)}}}
    for bad in ({key: value for key, value in good.items() if not key.endswith("weight")},
                {**good, "module.0.weight": torch.zeros(1, 1)}, damaged):
        with pytest.raises((RuntimeError, ValueError), match="0.weight|rank 1 has arguments=.* was not saved by"):
            model.load_state_dict(bad if rank == 1 else good)
        refusal = pytest.raises(ValueError, match="the last load_state_dict failed.* on some ranks alone: .*broadcast")
        with refusal:
            loss_of(model, rank)
        with refusal:
            optimizer.step()
        if bad is damaged:
            model.broadcast()
            model.check_replicas()
        else:
            model.load_state_dict(good)
        optimizer.zero_grad()
        train(model, optimizer, rank, 2)


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized", "qadam:warmup_steps=1"])
def test_a_load_that_failed_on_one_rank_ends_the_training_of_all(strategy):
    run_ranks(2, trains_on_after_a_load_that_failed, strategy)


def lacks_states_of_some_ranks(rank, strategy):
    model, optimizer = wrap(strategy)
    train(model, optimizer, rank, 2)
    good = loaded(saved(model.state_dict()))
    train(model, optimizer, rank, 1, first=2)
    weights = weights_of(model).clone()
    with pytest.raises(ValueError, match="'_extra_state', is missing in the state_dict of rank 0, the state_dict of rank 2, and "
                                         "not in the others: load one checkpoint on all ranks"):
        model.load_state_dict({**good, "_extra_state": good["_extra_state"] if rank == 1 else None})
    with pytest.raises(ValueError, match=r"'_extra_state', is missing in state_dict\[1\], and not in the others"):
        model.load_state_dict([{**good, "_extra_state": None if saver == 1 else good["_extra_state"]} for saver in range(3)])
    assert torch.equal(weights_of(model), weights) and model.step == 3
    train(model, optimizer, rank, 1, first=3)
    model.load_state_dict(good)
    assert model.step == 2


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_states_that_some_ranks_lack_are_an_error_that_names_these_ranks(strategy):
    run_ranks(3, lacks_states_of_some_ranks, strategy)


WRONG_STATES = {
    "an empty list": [], "None": None, "a number": 5, "a list with a number": [{}, 5],
    "no state": {"_extra_state": {}}, "a state of another type": {"_extra_state": {"state": 7}},
}


def gets_wrong_states_on_one_rank(rank):
    model, optimizer = wrap("decentralized")
    good = model.state_dict()
    for name, wrong in WRONG_STATES.items():
        if isinstance(wrong, dict):
            wrong = {**good, **wrong}
        with pytest.raises(ValueError, match="load_state_dict") as raised:
            model.load_state_dict(wrong if rank == 1 else good)
        assert rank == 1 or "rank 1" in str(raised.value), (name, raised.value)
        assert "load_state_dict: load_state_dict" not in str(raised.value), (name, raised.value)
    with pytest.raises(ValueError, match="assign"):
        model.load_state_dict(good, assign=rank == 1)
    model.load_state_dict(good)
    train(model, optimizer, rank, 2)


def test_wrong_states_on_one_rank():
    run_ranks(2, gets_wrong_states_on_one_rank)


def gets_wrong_strategy_states_on_one_rank(rank):
    model, optimizer = wrap("decentralized")
    good = [model.get_extra_state()]
    for wrong in ([{}], [*good, {"state": 7}], [5], {}, 5, []):
        mistake = "states is empty" if wrong == [] else "load_strategy_state: saved.* holds no state of a strategy"
        with pytest.raises(ValueError, match=mistake) as raised:
            model.load_strategy_state(wrong if rank == 1 else good)
        assert rank == 1 or "rank 1" in str(raised.value), (wrong, raised.value)
    model.load_strategy_state(good[0])
    train(model, optimizer, rank, 2)


def test_wrong_strategy_states_on_one_rank():
    run_ranks(2, gets_wrong_strategy_states_on_one_rank, timeout=8)


def moves_between_wrappers(rank):
    """Keys are those of stock DDP, so weights go from one to the other; a missing state starts the strategy anew."""
    plain = torch.nn.parallel.DistributedDataParallel(net())
    model, optimizer = wrap("low_precision_decentralized")
    train(model, optimizer, rank, 3)
    model.flush()
    state = model.state_dict()
    assert set(state) == {*plain.state_dict(), "_extra_state"}
    assert set(model.module.state_dict()) == set(plain.module.state_dict())
    model.load_state_dict(plain.state_dict())
    assert torch.equal(weights_of(model), weights_of(plain))
    train(model, optimizer, rank, 3)
    plain.module.load_state_dict(model.module.state_dict())


def test_weights_come_from_and_go_to_stock_ddp():
    run_ranks(2, moves_between_wrappers)


class Versioned(torch.nn.Linear):
    """A layer whose _load_from_state_dict, as those of torch's BatchNorm, asks which version of it was saved."""

    _version = 3

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *more):
        self.found = local_metadata.get("version")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)


def loads_versions(rank):
    model, _ = wrap("bytegrad", torch.nn.Sequential(Versioned(2, 2)))
    model.load_state_dict(loaded(saved(model.state_dict())))
    assert model.module[0].found == 3
    model.load_state_dict(dict(model.state_dict()))  # a plain dictionary has no versions
    assert model.module[0].found is None


def test_the_versions_of_saved_modules_are_loaded():
    run_ranks(2, loads_versions)


def broadcasts_optimizers(rank, strategy):
    model, optimizer = wrap(strategy)
    if rank == 0:
        optimizer.param_groups[0]["lr"] = 0.03
    model.broadcast_optimizer(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.03
    train(model, optimizer, rank, 3)
    model.flush()
    model.check_replicas()


@pytest.mark.parametrize("strategy", ["decentralized", "qadam:warmup_steps=2"])
def test_the_optimizer_of_rank_0_for_all(strategy):
    run_ranks(2, broadcasts_optimizers, strategy)


def broadcasts_types(rank):
    module = torch.nn.Linear(1, 1, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    optimizer.state[module.weight]["momentum_buffer"] = torch.full((1, 1), 1.0 + (1 - rank) / 1024)
    model = tutti.torch.DistributedDataParallel(module, optimizer)
    model.broadcast_optimizer(optimizer)
    state = optimizer.state[module.weight]["momentum_buffer"]
    return state.dtype, state.item()


def test_the_state_of_an_optimizer_keeps_its_types():
    assert run_ranks(2, broadcasts_types) == [(torch.float32, 1.0 + 1 / 1024)] * 2


class Lookahead(torch.optim.SGD):
    """An optimizer with a state_dict() of its own form."""

    def state_dict(self):
        return {"slow_state": {0: {"steps": self.steps, "hook": lambda: None}}}

    def load_state_dict(self, saved):
        assert saved["slow_state"][0]["hook"] is not None and saved.keys() == {"slow_state"}
        self.steps = saved["slow_state"][0]["steps"]


def broadcasts_uncommon_optimizers(rank):
    model, optimizer = wrap("gradient_allreduce")
    optimizer.state["seen"] = rank
    optimizer.state["hook"] = hook = lambda: None
    model.broadcast_optimizer(optimizer)
    assert optimizer.state["seen"] == 0 and optimizer.state["hook"] is hook
    optimizer = Lookahead(model.parameters(), 0.1)
    optimizer.steps = rank
    model.broadcast_optimizer(optimizer)
    assert optimizer.steps == 0


def test_optimizers_with_states_of_their_own_form():
    run_ranks(2, broadcasts_uncommon_optimizers)


def has_another_optimizer_on_rank_1(rank):
    module = net()
    optimizer = (torch.optim.SGD if rank == 0 else torch.optim.Adam)(module.parameters(), 0.1)
    model = tutti.torch.DistributedDataParallel(module, optimizer)
    with pytest.raises(ValueError, match="the optimizer of rank 1 is a Adam, and that of rank 0 a SGD: make optimizers of"):
        model.broadcast_optimizer(optimizer)
    train(model, optimizer, rank, 1)


def test_optimizers_of_two_classes_are_an_error_on_all_ranks():
    run_ranks(2, has_another_optimizer_on_rank_1)


def wrong_arguments(rank):
    module = net()
    ddp = tutti.torch.DistributedDataParallel
    with pytest.raises(TypeError, match="torch.nn.Module"):
        ddp(module.parameters())
    with pytest.raises(ValueError, match="decentralized"):
        ddp(module, strategy="decentralised")
    with pytest.raises(ValueError, match='"broadcast", "average" or "leave"'):
        ddp(module, buffers="sum")
    with pytest.raises(TypeError, match="bucket_cap_mb is a str; give a number of MiB"):
        ddp(module, bucket_cap_mb="25")
    for mib in (0, -1, math.nan, math.inf, 1e-9, 1e30):
        with pytest.raises(ValueError, match=f"bucket_cap_mb={re.escape(str(mib))}; give a number of MiB above 0, or None"):
            ddp(module, bucket_cap_mb=mib)
    ddp(net(), bucket_cap_mb=None)
    for name in ("autotune", "find_unused_parameters"):
        with pytest.raises(TypeError, match=f"{name} is 'yes'; give True or False"):
            ddp(module, **{name: "yes"})
    with pytest.raises(TypeError, match="optimizer is a int; give a torch.optim.Optimizer, a list of them, or None"):
        ddp(module, 5)
    with pytest.raises(TypeError, match="DistributedDataParallel: the process group is a str; give what .*new_group"):
        ddp(module, process_group="world")
    with pytest.raises(TypeError, match="torch.optim.Optimizer"):
        ddp(module, [module.parameters()], "decentralized")
    with pytest.raises(TypeError, match="strategy is a SGD; .* module, optimizer, strategy"):
        ddp(module, "decentralized", torch.optim.SGD(module.parameters(), 0.1))
    with pytest.raises(ValueError, match="no parameter of the module"):
        ddp(net(), torch.optim.SGD(net().parameters(), 0.1), "decentralized")
    with pytest.raises(ValueError, match="wrap its .module"):
        ddp(torch.nn.parallel.DistributedDataParallel(net()))
    with pytest.raises(ValueError, match="gloo"):
        ddp(module, process_group=dist.new_group(backend="gloo"))
    with pytest.raises(ValueError, match="buffers"):
        ddp(module, buffers=["leave", "average"][rank])
    with pytest.raises(ValueError, match="rank 1"):  # an error of one rank is an error on all
        ddp(net() if rank == 0 else torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    model = ddp(module, optimizer, "decentralized")
    with pytest.raises(ValueError, match="already"):
        model.add_optimizer(optimizer)
    with pytest.raises(TypeError, match="an optimizer is a torch.optim.Optimizer, not a NoneType"):
        model.broadcast_optimizer(None)
    with pytest.raises(TypeError, match="set_loss_scale: scale is a str; give a number"):
        model.set_loss_scale("3")
    with pytest.raises(ValueError, match="wrapped twice"):
        ddp(module)
    with pytest.raises(ValueError, match="assign"):
        model.load_state_dict(model.state_dict(), assign=True)
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({"module.0.weight": module[0].weight})


def test_wrong_arguments():
    run_ranks(2, wrong_arguments)


def changes_weights_behind_its_back(rank):
    model, optimizer = wrap("decentralized")
    train(model, optimizer, rank, 2)
    with torch.no_grad():
        model.module[0].weight.mul_(2)
    with pytest.raises(ValueError, match="0.weight: weights were changed outside .* broadcast()"):
        loss_of(model, rank).backward()
    model.broadcast()
    optimizer.zero_grad()
    train(model, optimizer, rank, 1)

    loss_of(model, rank).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()  # an optimizer that the model does not know
    with pytest.raises(ValueError, match="add_optimizer"):
        loss_of(model, rank).backward()
    model.broadcast()

    model.module[2].weight.data = model.module[2].weight.data.clone()
    with pytest.raises(ValueError, match="2.weight was moved to other memory .* drop this DistributedDataParallel"):
        model.flush()


def test_weights_that_change_outside_of_steps():
    run_ranks(2, changes_weights_behind_its_back)


def changes_the_module(rank, strategy):
    model, _ = wrap(strategy)
    model.module.load_state_dict({key: value.clone() for key, value in net().state_dict().items()}, assign=True)
    for call in (model.check_replicas, model.flush, model.broadcast, lambda: loss_of(model, rank)):
        with pytest.raises(ValueError, match="0.weight was replaced .*assign=True.* wrap the module anew"):
            call()
    model, _ = wrap(strategy)
    if rank == 1:
        model.module.append(torch.nn.Linear(3, 3))
    for call in (model.check_replicas, model.broadcast):
        with pytest.raises(ValueError, match="3.weight was registered"):
            call()
    module = net()
    module[0].bias.requires_grad_(False)
    model, _ = wrap(strategy, module)
    module[0].bias.requires_grad_(True)
    with pytest.raises(ValueError, match="0.bias was unfrozen"):
        loss_of(model, rank).backward()
    module[0].bias.requires_grad_(False)
    module.append(torch.nn.ReLU())  # a module that has no parameters
    loss_of(model, rank).backward()


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "decentralized"])
def test_a_module_that_changes_after_it_was_wrapped(strategy):
    run_ranks(2, changes_the_module, strategy)


def has_no_exchanged_gradients(rank):
    model, optimizer = wrap("bytegrad")
    with model.no_sync():
        loss_of(model, rank).backward()
    with pytest.raises(ValueError, match="accumulated under NoSync"):
        optimizer.step()
    loss_of(model, rank).backward()
    optimizer.step()
    optimizer.zero_grad()
    for parameter, grad in zip(model.parameters(), torch.autograd.grad(loss_of(model, rank), list(model.parameters()))):
        parameter.grad = grad
    with pytest.raises(ValueError, match="rank alone"):
        optimizer.step()
    model.module[0].weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    with pytest.raises(ValueError, match="0.weight: a hook of yours has taken the gradient away"):
        loss_of(model, rank).backward()
    dist.barrier()  # a rank that ends now would be another error


def test_gradients_that_were_not_exchanged():
    run_ranks(2, has_no_exchanged_gradients)


def replaces_gradients_of_two_optimizers(rank):
    module = net()
    optimizers = [torch.optim.SGD(layer.parameters(), 0.1) for layer in (module[0], module[2])]
    model = tutti.torch.DistributedDataParallel(module, optimizers)
    for step in range(3):
        loss_of(model, rank, step).backward()
        for parameter in module.parameters():
            parameter.grad = parameter.grad.clamp(-0.01, 0.01)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    for optimizer in optimizers:
        with pytest.raises(ValueError, match="was not made by a backward"):
            optimizer.step()
    model.check_replicas()


def test_two_optimizers_and_gradients_of_the_user():
    run_ranks(2, replaces_gradients_of_two_optimizers)


def meets_a_dead_rank(rank):
    model, optimizer = wrap("decentralized")
    train(model, optimizer, rank, 2)
    if rank == 1:
        os._exit(3)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        train(model, optimizer, rank, 3)


def test_a_rank_that_dies():
    run_ranks(2, meets_a_dead_rank, may_die=[1])
