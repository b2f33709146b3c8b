"""Wrong arguments: the error names the argument and what would be right, and the group goes on."""

import copy
import datetime
import pickle

import pytest
import torch
import torch.distributed as dist

import tutti.torch
from ranks import run_ranks


def wrong_arguments(rank):
    tensor = torch.ones(4)
    cases = [
        (lambda: dist.all_reduce(torch.ones(4).to_sparse(), op=dist.ReduceOp.MAX), ValueError, "SUM"),
        (lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.BAND), ValueError, "op band is not defined for f32"),
        (lambda: dist.all_reduce(torch.zeros(4, dtype=torch.float8_e5m2)), ValueError, "f8"),
        (lambda: dist.all_reduce(torch.zeros(4, dtype=torch.float8_e8m0fnu)), TypeError, "cannot be reduced"),
        (lambda: dist.all_gather_into_tensor(torch.zeros(7), tensor), ValueError, "8 would be right"),
        (lambda: dist.reduce_scatter_tensor(torch.zeros(3), tensor), ValueError, "6 would be right"),
        (lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)), ValueError, "divide"),
        (lambda: dist.all_to_all_single(torch.zeros(4), tensor, [1, 2], [2, 2]), ValueError, "sum to 3"),
        (lambda: dist.send(tensor, 1 - rank, tag=1 << 30), ValueError, "tag"),
        (lambda: dist.all_gather([torch.zeros(4)], tensor), ValueError, "2 ranks"),
        (lambda: dist.all_reduce(torch.zeros(1).expand(4)), ValueError, "share memory"),
        (lambda: dist.irecv(torch.zeros(1).expand(4), 1 - rank), ValueError, "share memory"),
        (lambda: dist.all_gather_into_tensor(torch.zeros(8, dtype=torch.int32), tensor), TypeError, "the same type"),
    ]
    for number, (call, kind, text) in enumerate(cases):
        error = None
        try:
            call()
        except Exception as raised:
            error = raised
        assert type(error) is kind and text in str(error), (number, error)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4


def calls_that_do_not_match(rank):
    group = dist.new_group([0, 1])
    with pytest.raises(Exception) as raised:
        for _ in range(3):
            dist.all_reduce(torch.ones(4 + rank), group=group)
    assert "count=" in str(raised.value) and "global ranks 0, 1" in str(raised.value), raised.value
    dist.barrier()


def messages_that_do_not_match(rank):
    tensor = torch.ones(4, dtype=torch.int32 if rank == 0 else torch.float32)
    if rank == 0:
        dist.send(tensor, 1)
        dist.send(torch.ones(3), 1)
    else:
        dist.recv(tensor, 0)
        assert tensor.view(torch.int32).tolist() == [1] * 4
        with pytest.raises(ValueError, match="message from rank 0 holds 12 bytes; the receive expects 16"):
            dist.recv(tensor, 0)
    with pytest.raises(ValueError, match="holds 12 bytes; the receive expects 16"):
        dist.all_reduce(torch.ones(1))


def options_of_a_group(rank):
    for options in dist.ProcessGroupGloo._Options(), {"is_high_priority_stream": True}:
        with pytest.raises(ValueError, match="pg_options is a .*, and the backend tutti has no options"):
            dist.new_group([0, 1], pg_options=options)
    dist.all_reduce(tensor := torch.ones(4), group=dist.new_group([0, 1], pg_options=None))
    assert tensor.tolist() == [2.0] * 4


def timeouts_of_a_group(rank):
    for timeout in datetime.timedelta(0), datetime.timedelta(microseconds=900), datetime.timedelta.max:
        with pytest.raises(ValueError, match="timeout is .* s; the timeout of a group is a millisecond or more"):
            dist.new_group([0, 1], timeout=timeout)
    with pytest.raises(ValueError, match="timeout is -1 s; .* give timedelta\\(days=36500\\)"):
        dist.new_group([0, 1], timeout=datetime.timedelta(seconds=-1))
    for timeout in datetime.timedelta(milliseconds=1), datetime.timedelta(days=36500):
        dist.new_group([rank], timeout=timeout, use_local_synchronization=True)
    dist.barrier()


def things_of_another_kind(rank):
    group = dist.new_group([0])
    if rank == 1:
        with pytest.raises(ValueError, match="rank 1 is no member of the process group"):
            tutti.torch.empty(3, group=group)
    with pytest.raises(TypeError, match="tutti.torch.empty: the process group is a str; give what .*new_group returned"):
        tutti.torch.empty(3, group="world")
    with pytest.raises(TypeError, match="empty: dtype is a str; give a torch.dtype such as torch.float32"):
        tutti.torch.empty(3, dtype="f32")
    for size in ((3.5,), (2, "3"), ([2, None],)):
        with pytest.raises(TypeError, match="empty: size is .*; give integers, or one sequence of them"):
            tutti.torch.empty(*size)
    assert tutti.torch.empty(torch.Size([2, 3])).shape == tutti.torch.empty(2, torch.tensor(3)).shape == (2, 3)
    for module, name in ((torch.nn.Linear(2, 2), "Linear"), (tutti.torch.DistributedDataParallel(
            torch.nn.Linear(2, 2)), "tutti.torch.*DistributedDataParallel"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"register: model is a .*{name}; wrap it in torch.nn.parallel"):
            tutti.torch.register(module, "bytegrad")


def copies(rank):
    wrapper = tutti.torch.DistributedDataParallel(torch.nn.Linear(2, 2))
    exchange = tutti.torch.register(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2)), "bytegrad")
    for copied, text in (wrapper, "copy model.module, or save model.state_dict()"), (exchange, "save state_dict()"):
        for call in copy.copy, copy.deepcopy, pickle.dumps:
            with pytest.raises(TypeError, match=f"belongs to a process group, and cannot be pickled or copied: {text}"):
                call(copied)


def test_before_there_is_a_group():
    with pytest.raises(ValueError, match="tutti.torch.empty: there is no process group: call .*init_process_group"):
        tutti.torch.empty(3)


@pytest.mark.parametrize("function", [
    wrong_arguments, calls_that_do_not_match, messages_that_do_not_match, options_of_a_group, timeouts_of_a_group,
    things_of_another_kind, copies], ids=lambda f: f.__name__)
def test_mistake(function):
    run_ranks(2, function)
