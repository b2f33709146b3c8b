"""tutti.torch.QAdam: its states, its wrapper, and what it refuses."""

import copy
import math
import warnings

import pytest
import torch

import tutti.torch
from ranks import run_ranks
from replicas_states_test import loaded, saved
from replicas_test import loss_of, net, train, weights_of, wrap


def trains_copies(rank):
    torch.manual_seed(3)
    module = net()
    unused = copy.deepcopy((module, tutti.torch.QAdam(module.parameters(), 0.01)))
    model = tutti.torch.DistributedDataParallel(*unused, "qadam:warmup_steps=2")
    train(model, unused[1], rank, 3)
    module, optimizer = copy.deepcopy((model.module, unused[1]))
    with pytest.raises(ValueError, match="QAdam belongs to a model"):
        optimizer.step()
    other = tutti.torch.DistributedDataParallel(module, optimizer, "qadam:warmup_steps=2")
    assert optimizer.frozen
    train(model, unused[1], rank, 2, first=3)
    train(other, optimizer, rank, 2, first=3)
    assert torch.equal(weights_of(model), weights_of(other))


def test_copies_of_qadam_have_its_state():
    run_ranks(2, trains_copies)


def loads_before_wrapping(rank):
    model, optimizer = wrap("qadam:warmup_steps=2")
    train(model, optimizer, rank, 3)
    assert optimizer.frozen
    later = tutti.torch.QAdam(net().parameters())
    later.load_state_dict(loaded(saved(optimizer.state_dict())))
    module = net()
    again = tutti.torch.QAdam(module.parameters())
    again.load_state_dict(optimizer.state_dict())
    module.load_state_dict(model.module.state_dict())
    wrapped = tutti.torch.DistributedDataParallel(module, again, "qadam:warmup_steps=2")
    assert again.frozen and again.param_groups[0]["lr"] == 0.01
    train(model, optimizer, rank, 2)
    train(wrapped, again, rank, 2)
    assert torch.equal(weights_of(model), weights_of(wrapped))


def test_qadam_can_load_its_state_before_the_model_is_wrapped():
    run_ranks(2, loads_before_wrapping)


def loads_under_other_names(rank):
    model, optimizer = wrap("qadam:warmup_steps=2")
    train(model, optimizer, rank, 3)
    compiled, other = wrap("qadam:warmup_steps=2", torch.nn.Sequential(copy.deepcopy(model.module)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(loaded(saved(optimizer.state_dict())))
    train(model, optimizer, rank, 2)
    train(compiled, other, rank, 2)
    assert torch.equal(weights_of(model), weights_of(compiled))


def test_qadam_loads_its_state_where_all_names_are_others():
    run_ranks(2, loads_under_other_names)


def begins_anew_in_part(rank):
    module = net()
    module[0].requires_grad_(False)
    model, optimizer = wrap("qadam:warmup_steps=9", module)
    train(model, optimizer, rank, 2)
    state = optimizer.state_dict()
    warning = r"nothing of 2 parameters that are trained here \(0.weight, 0.bias\), which begin anew"
    _, other = wrap("qadam:warmup_steps=9")
    with pytest.warns(UserWarning, match=warning):
        other.load_state_dict(state)
    unwrapped = net()
    other = tutti.torch.QAdam(unwrapped.parameters())
    other.load_state_dict(state)
    with pytest.warns(UserWarning, match=warning):
        tutti.torch.DistributedDataParallel(unwrapped, other, "qadam:warmup_steps=9")


def test_qadam_warns_of_parameters_that_begin_anew():
    run_ranks(2, begins_anew_in_part)


def refuses_other_groups(rank):
    model, optimizer = wrap("qadam:warmup_steps=2")
    train(model, optimizer, rank, 3)
    state = optimizer.state_dict()
    module = net()
    module[0].requires_grad_(False)
    part = tutti.torch.QAdam([parameter for parameter in module.parameters() if parameter.requires_grad], 0.05)
    refused = r"the state has groups of \[4\] parameters, and this optimizer of \[2\]: give both all parameters"
    with pytest.raises(ValueError, match=refused):
        part.load_state_dict(state)
    model = tutti.torch.DistributedDataParallel(module, part, "qadam:warmup_steps=2")
    before = part.state_dict()
    assert not part.frozen
    with pytest.raises(ValueError, match=refused):
        part.load_state_dict(state)
    assert not part.frozen and part.param_groups[0]["lr"] == 0.05
    assert torch.equal(part.state_dict()["state"][0]["qadam"], before["state"][0]["qadam"])
    model.check_replicas()


def test_qadam_is_unchanged_by_a_state_of_other_groups():
    run_ranks(2, refuses_other_groups)


def loses_its_wrapper(rank):
    model, optimizer = wrap("qadam:warmup_steps=2")
    train(model, optimizer, rank, 3)
    module = model.module
    del model
    for use in (optimizer.step, optimizer.state_dict, lambda: optimizer.frozen):
        with pytest.raises(ValueError, match="QAdam belongs to a model, whose wrapper is gone, .*DistributedDataParallel"):
            use()
    optimizer.zero_grad()
    model = tutti.torch.DistributedDataParallel(module, optimizer, "qadam:warmup_steps=2")
    assert not optimizer.frozen
    train(model, optimizer, rank, 3)
    assert optimizer.frozen
    del model  # another optimizer takes the module over, while the first is still there
    another = tutti.torch.QAdam(module.parameters())
    model = tutti.torch.DistributedDataParallel(module, another, "qadam:warmup_steps=2")
    another.zero_grad()
    train(model, another, rank, 3)
    model.check_replicas()


def test_qadam_without_its_wrapper():
    run_ranks(2, loses_its_wrapper)


def follows_schedules(rank):
    """The schedule of one step reaches the next backward, which puts beta1 into the momentum, and the next step."""
    model, optimizer = wrap("qadam:warmup_steps=1")
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    for step in range(4):
        train(model, optimizer, rank, 1, first=step)
        schedule.step()
    before = weights_of(model)
    optimizer.param_groups[0]["lr"] = 0.0
    train(model, optimizer, rank, 1)
    assert torch.equal(before, weights_of(model))
    model.check_replicas()


def test_schedules_reach_qadam():
    run_ranks(2, follows_schedules)


def wrong_qadams(rank):
    module = net()
    optimizer = tutti.torch.QAdam(module.parameters())
    with pytest.raises(ValueError, match="DistributedDataParallel"):
        optimizer.step()
    with pytest.raises(ValueError, match="QAdam, not SGD"):
        tutti.torch.DistributedDataParallel(net(), torch.optim.SGD(module.parameters(), 0.1), "qadam")
    with pytest.raises(ValueError, match="qadam"):
        tutti.torch.DistributedDataParallel(other := net(), tutti.torch.QAdam(other.parameters()), "bytegrad")
    with pytest.raises(ValueError, match="no parameter of the module"):
        tutti.torch.DistributedDataParallel(net(), tutti.torch.QAdam(net().parameters()), "qadam")
    other = net()
    with pytest.raises(ValueError, match="0.bias is missing"):
        tutti.torch.DistributedDataParallel(other, tutti.torch.QAdam([other[0].weight]), "qadam")
    changed = tutti.torch.QAdam(other.parameters())
    changed.param_groups[0]["betas"] = (0.9, 2)
    with pytest.raises(ValueError, match="beta2 is 2"):
        tutti.torch.DistributedDataParallel(other, changed, "qadam")
    for wrong in (torch.optim.Adam(module.parameters()).state_dict(), {}, {"param_groups": []}):
        with pytest.raises(ValueError, match="no parameter has 'qadam' in its state"):
            optimizer.load_state_dict(wrong)
    for wrong in ({"learning_rate": 0.1}, {"amsgrad": True}):
        group = {"params": [torch.zeros(1, requires_grad=True)], **wrong}
        for give in (optimizer.add_param_group, lambda group: tutti.torch.QAdam([group])):
            with pytest.raises(ValueError, match=f"has '{next(iter(wrong))}'; it may have lr, betas, eps, weight_decay"):
                give(group)
    with pytest.raises(TypeError, match="must be a dict"):
        optimizer.add_param_group([torch.zeros(1, requires_grad=True)])
    model = tutti.torch.DistributedDataParallel(module, strategy="qadam:warmup_steps=1")
    with pytest.raises(ValueError, match="QAdam"):
        loss_of(model, rank).backward()
    model.add_optimizer(optimizer)
    train(model, optimizer, rank, 2)  # grad holds momentum now
    with pytest.raises(ValueError, match="momentum"):
        loss_of(model, rank).backward()
    optimizer.zero_grad()
    optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
    with pytest.raises(ValueError, match="2 groups, was created with 1"):
        loss_of(model, rank).backward()


@pytest.mark.parametrize("options, kind, text", [
    *(({name: value}, ValueError, f"QAdam: {name}={value}; give a number from 0 on")
      for name in ("lr", "eps", "weight_decay") for value in (-1, math.inf, math.nan)),
    ({"lr": "0.1"}, TypeError, "QAdam: lr is a str; give a number from 0 on"),
    ({"lr": torch.ones(2)}, TypeError, "QAdam: lr is a Tensor; give a number from 0 on"),
    ({"betas": 0.9}, TypeError, "QAdam: betas is 0.9; give two numbers in"),
    ({"betas": (0.9,)}, TypeError, r"QAdam: betas is \(0.9,\); give two numbers in"),
    ({"betas": (0.9, 2)}, ValueError, "QAdam: one of betas=2; give two numbers in"),
    ({"betas": (0.9, None)}, TypeError, "QAdam: one of betas is a NoneType; give two numbers in")])
def test_wrong_options_of_qadam(options, kind, text):
    with pytest.raises(kind, match=text):
        tutti.torch.QAdam(net().parameters(), **options)
    optimizer = tutti.torch.QAdam(net().parameters(), torch.tensor(0.1), [0.9, 0.99])
    with pytest.raises(kind, match=text):
        optimizer.add_param_group({"params": net().parameters(), **options})
    assert len(optimizer.param_groups) == 1


def test_wrong_uses_of_qadam():
    run_ranks(2, wrong_qadams)
