"""What old scripts import as horovod.torch, on two ranks: numbers, gradients, the optimizer, and what is refused."""

import copy
import gc
import io
import os
import pickle

import pytest
import torch
import torch.distributed as dist

import tutti.compat.horovod.torch as hvd
from ranks import run_ranks


def on_two_ranks(function, *arguments):
    """Runs a function of the rank between init() and shutdown()."""
    return run_ranks(2, _initialized, function, *arguments)


def _initialized(rank, function, *arguments):
    hvd.init()
    value = function(rank, *arguments)
    hvd.shutdown()
    return value


def raised_by(function, *arguments, **named):
    """The type and the text of the error that a call raises."""
    try:
        function(*arguments, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


# ---- the world ----


def places(rank, nodes):
    os.environ["TUTTI_NODE"] = nodes[rank]
    return _initialized(rank, lambda _: (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(),
                                         hvd.cross_size()))


def test_places():
    assert on_two_ranks(lambda rank: (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())) == [
        (0, 2, 0, 1), (1, 2, 0, 1)
    ]
    # Two ranks on machine a, one on b, and their order is a b a.
    assert run_ranks(3, places, "aba") == [(0, 3, 0, 2, 0, 2), (1, 3, 0, 1, 1, 2), (2, 3, 1, 2, 0, 1)]


def lives(rank):
    before = hvd.is_initialized(), raised_by(hvd.rank), raised_by(hvd.init, comm=[0])
    hvd.init()
    hvd.init()
    during = hvd.is_initialized(), hvd.rank()
    hvd.shutdown()
    after = hvd.is_initialized(), dist.is_initialized()
    hvd.init()
    dist.destroy_process_group()
    return before, during, after, hvd.is_initialized()


def test_init_and_shutdown():
    error = "ValueError: Horovod is not initialized: call hvd.init() first"
    comm = ("ValueError: hvd.init: comm=[0]; leave comm out, and make groups of some ranks with "
            "torch.distributed.new_group(ranks)")
    # The process group that was there before init() stays.
    assert run_ranks(2, lives) == [((False, error, comm), (True, rank), (False, True), False) for rank in range(2)]


def test_a_group_of_another_backend_is_refused():
    for text in run_ranks(2, lambda rank: raised_by(hvd.init), backend="gloo"):
        assert text.startswith("ValueError: tutti.torch.hvd.init: the process group runs on gloo"), text


def test_join_and_barrier():
    assert on_two_ranks(lambda rank: (hvd.barrier(), hvd.join(), hvd.join(device=0))) == [(None, 1, 1)] * 2


def joins_alone(rank):
    hvd.init()
    return raised_by(hvd.join if rank == 1 else lambda: hvd.allreduce(torch.ones(3)))


def test_a_rank_that_joins_alone_is_named():
    for text in run_ranks(2, joins_alone):
        assert "rank 0 called all_reduce" in text and "rank 1 called barrier" in text, text


def joins_while_another_steps(rank):
    hvd.init()
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0))
    return raised_by(hvd.join if rank == 1 else optimizer.step)


def test_a_rank_that_joins_while_another_steps_is_named():
    steps, joins = run_ranks(2, joins_while_another_steps)
    assert "rank 0 called all_reduce" in steps and "rank 1 called barrier" in steps, steps
    assert "rank 0" in joins, joins


# ---- collectives ----


def reduce_all(rank):
    tensor = torch.tensor([1.0, 4.0]) if rank == 0 else torch.tensor([3.0, 2.0])
    results = {
        name: hvd.allreduce(tensor, op=getattr(hvd, name)).tolist()
        for name in ("Average", "Sum", "Min", "Max", "Product")
    }
    results["default"] = hvd.allreduce(tensor, name="ignored").tolist()
    results["old"] = hvd.allreduce(tensor, average=False).tolist()
    results["fp16"] = hvd.allreduce(tensor, compression=hvd.Compression.fp16).tolist()
    results["integers"] = hvd.allreduce(torch.tensor([rank, 3]), compression=hvd.Compression.fp16).tolist()
    results["unchanged"] = tensor.tolist() == ([1, 4] if rank == 0 else [3, 2])
    results["scaled"] = hvd.allreduce(tensor, op=hvd.Max, prescale_factor=-2.0, postscale_factor=0.5).tolist()
    handle = hvd.allreduce_async(tensor, op=hvd.Sum, postscale_factor=0.5)
    results["scaled once"] = hvd.synchronize(handle).tolist() == hvd.synchronize(handle).tolist() == [2, 3]
    integers = torch.tensor([3 + rank])
    results["scaled integers"] = hvd.allreduce(integers, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25).tolist()
    results["scaled in place"] = hvd.allreduce_(tensor.clone(), prescale_factor=2.0).tolist()
    handle = hvd.allreduce_async(tensor, op=hvd.Sum)
    results["async"] = hvd.synchronize(handle).tolist()
    results["polled"] = hvd.poll(handle)
    strided = torch.arange(4.0).view(2, 2).t()
    results["strided"] = hvd.allreduce(strided, op=hvd.Sum).tolist()
    assert hvd.allreduce_(tensor) is tensor
    results["in place"] = tensor.tolist()
    results["in place async"] = hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Sum)).tolist()
    return results


def test_allreduce():
    results = on_two_ranks(reduce_all)
    assert results[0] == results[1] == {
        "Average": [2, 3],
        "Sum": [4, 6],
        "Min": [1, 2],
        "Max": [3, 4],
        "Product": [3, 8],
        "default": [2, 3],
        "old": [4, 6],
        "fp16": [2, 3],
        "integers": [0, 3],
        "unchanged": True,
        "scaled": [-1, -2],
        "scaled once": True,
        "scaled integers": [3],
        "scaled in place": [4, 6],
        "async": [4, 6],
        "polled": True,
        "strided": [[0, 4], [2, 6]],
        "in place": [2, 3],
        "in place async": [4, 6]
    }


def move(rank):
    rows = torch.full((rank + 1, 2), float(rank))
    scalar = hvd.allgather(torch.tensor(rank))
    kept = torch.tensor([rank])
    assert hvd.broadcast_(kept, 1) is kept
    exchanged, counts = hvd.alltoall(torch.arange(3) + 10 * rank, splits=torch.tensor([[1, 2], [3, 0]][rank]))
    assert hvd.allgather(torch.empty(0, 3)).shape == (0, 3)
    return (hvd.allgather(rows).tolist(), scalar.tolist(), hvd.broadcast(rows[:1], root_rank=1).tolist(), kept.tolist(),
            hvd.alltoall(torch.arange(4) + 10 * rank).tolist(), exchanged.tolist(), counts.tolist())


def test_allgather_broadcast_and_alltoall():
    same = [[0, 0], [1, 1], [1, 1]], [0, 1], [[1, 1]], [1]
    assert on_two_ranks(move) == [(*same, [0, 1, 10, 11], [0, 10, 11, 12], [1, 3]),
                                  (*same, [2, 3, 12, 13], [1, 2], [2, 0])]


def gradients(rank):
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0]) * (rank + 1)
    found = []
    for call in (lambda x: hvd.allreduce(x, op=hvd.Sum), hvd.allreduce, lambda x: hvd.allgather(x[:2]),
                 lambda x: hvd.broadcast(x, 1), hvd.alltoall,
                 lambda x: hvd.allreduce(x, prescale_factor=2.0, postscale_factor=3.0)):
        x = torch.zeros(4, requires_grad=True)
        result = call(x)
        (result * weights[:len(result)]).sum().backward()
        found.append(x.grad.tolist())
    x = torch.ones(1, requires_grad=True)
    return found, raised_by(hvd.allreduce(x, op=hvd.Max).backward)


def test_gradients_of_collectives():
    maximum = "NotImplementedError: hvd.allreduce: only hvd.Average and hvd.Sum have a gradient; detach() the tensor"
    first, second = on_two_ranks(gradients)
    assert first == ([[3, 6, 9, 12], [1.5, 3, 4.5, 6], [1.5, 3, 0, 0], [0, 0, 0, 0], [1, 2, 2, 4], [9, 18, 27, 36]], maximum)
    assert second == ([[3, 6, 9, 12], [1.5, 3, 4.5, 6], [4.5, 6, 0, 0], [1.5, 3, 4.5, 6], [3, 4, 6, 8], [9, 18, 27, 36]],
                      maximum)


def contrasts(rank):
    """A loss over the features of all ranks, which each rank computes alike, and trained by the optimizer."""
    layer = torch.nn.Linear(3, 2, bias=False)
    torch.nn.init.constant_(layer.weight, 0.5)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), 1.0))
    features = hvd.allgather(layer(batch(0, rank)))
    (features @ features.t()).logsumexp(1).mean().backward()
    optimizer.synchronize()
    return layer.weight.grad.tolist()


def test_a_loss_over_gathered_features():
    """Each rank gets its rows' part of the gradient, as with Horovod: their average is 1/n of that of one process."""
    weight = torch.full((2, 3), 0.5, requires_grad=True)
    features = torch.cat([batch(0, rank) for rank in range(2)]) @ weight.t()
    (features @ features.t()).logsumexp(1).mean().backward()
    for found in on_two_ranks(contrasts):
        assert_close(found, (weight.grad / 2).tolist())


def objects(rank):
    layer = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(layer.weight, rank)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1 * (rank + 1))
    layer(torch.full((1, 2), rank + 1.0)).sum().backward()
    optimizer.step()
    hvd.broadcast_parameters(layer.state_dict(), root_rank=1)
    strided = torch.full((2, 3), float(rank)).t()
    hvd.broadcast_parameters([("strided", strided), ("nothing", None)], root_rank=1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    state = optimizer.state_dict()
    return (layer.weight.tolist(), strided.tolist(), state["param_groups"][0]["lr"],
            state["state"][0]["exp_avg"].tolist(), hvd.broadcast_object({"rank": rank}, root_rank=1),
            hvd.allgather_object((rank, "a")), raised_by(hvd.broadcast_parameters, {"step": 3}, 0))


def test_parameters_states_and_objects():
    first, second = on_two_ranks(objects)
    assert first[:-1] == second[:-1]
    assert first[1:3] == ([[1, 1]] * 3, 0.2)
    assert first[4:6] == ({"rank": 1}, [(0, "a"), (1, "a")])
    assert first[6].startswith("ValueError: hvd.broadcast_parameters: rank 0: 'step' is a int; give tensors only")


def mistakes(rank):
    tensor = torch.ones(3)
    return (raised_by(hvd.allreduce, tensor, op=hvd.Adasum), raised_by(hvd.allreduce, tensor, average=True, op=hvd.Sum),
            raised_by(hvd.alltoall, tensor), raised_by(hvd.alltoall, tensor, splits=[1, 1]),
            raised_by(hvd.DistributedOptimizer, torch.nn.Linear(1, 1)))


def test_mistakes_are_named():
    for rank, texts in enumerate(on_two_ranks(mistakes)):
        assert [text.split(";")[0] for text in texts] == [
            "ValueError: hvd.Adasum: Tutti does not have it",
            "ValueError: hvd.allreduce: average and op are both given",
            f"ValueError: hvd.alltoall: rank {rank}: tensor has 3 rows, which do not split into 2 equal parts",
            f"ValueError: hvd.alltoall: rank {rank}: splits=[1, 1]",
            "TypeError: hvd.DistributedOptimizer: optimizer is a Linear"
        ]


# ---- the optimizer ----


def small_net(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1))


def batch(step, rank):
    torch.manual_seed(100 * step + rank)
    return torch.randn(5, 3)


STEPS = 4


def train(rank, how, passes=1, compression=hvd.Compression.none):
    net = small_net(seed=1 + rank)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    same = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters(), compression=compression,
                                    backward_passes_per_step=passes, gradient_predivide_factor=2.0, num_groups=2)
    assert same is optimizer and isinstance(optimizer, torch.optim.SGD)
    for step in range(STEPS):
        def closure():
            optimizer.zero_grad()
            for part in range(passes):
                net(batch(step, 10 * part + rank)).square().mean().backward()

        if how == "closure":
            optimizer.step(closure)
            continue
        closure()
        if how == "step":
            optimizer.step()
        elif how == "synchronize":
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            with optimizer.skip_synchronize():
                optimizer.step()
    return [parameter.tolist() for parameter in net.parameters()]


def train_alone(passes=1, clips=False):
    """What two ranks compute, in one process."""
    net = small_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            for rank in range(2):
                (net(batch(step, 10 * part + rank)).square().mean() / 2).backward()
        if clips:
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    return [parameter.tolist() for parameter in net.parameters()]


def assert_close(found, wanted, tolerance=1e-5):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("how", ["step", "closure", "synchronize"])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_optimizer_trains_as_one_process_does(how, passes):
    first, second = on_two_ranks(train, how, passes)
    assert first == second
    assert_close(first, train_alone(passes, clips=how == "synchronize"))


def test_the_optimizer_sends_half_precision():
    first, second = on_two_ranks(train, "step", 1, hvd.Compression.fp16)
    assert first == second
    assert_close(first, train_alone(), 1e-2)
    assert first != train_alone()


def has_sparse_gradients(rank):
    embedding = torch.nn.Embedding(3, 1, sparse=True)
    torch.nn.init.zeros_(embedding.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), 1.0), sparse_as_dense=True)
    for _ in range(2):
        optimizer.zero_grad()
        embedding(torch.tensor([rank, 2])).sum().backward()
        optimizer.step()
    return embedding.weight.flatten().tolist()


def test_sparse_gradients_as_dense_ones():
    assert on_two_ranks(has_sparse_gradients) == [[-1, -1, -2]] * 2


def uneven(rank):
    """Each rank uses layers of its own, in an order of its own; nobody uses the last one."""
    layers = torch.nn.ModuleList(torch.nn.Linear(1, 1, bias=False) for _ in range(4))
    optimizer = torch.optim.SGD(layers[:3].parameters(), 1.0)
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
    optimizer.add_param_group({"params": layers[3].parameters()})
    x = torch.ones(1, 1)
    ((layers[0](x) + 2 * layers[1](x)) if rank == 0 else 3 * layers[1](x)).sum().backward()
    optimizer.step()
    return [layer.weight.grad.item() for layer in layers]


def test_parameters_that_some_ranks_do_not_use():
    assert on_two_ranks(uneven) == [[1, 5, 0, 0]] * 2


def heads(rank):
    """Two optimizers, and a call of the script between backward and step: ranks make these calls in other orders.

    Rank 0 uses both parameters, and the later one's gradient comes first in its backward; the other ranks use one.
    """
    first, second = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([one], 1.0), op=hvd.Sum) for one in (first, second)]
    loss = (2 * second + first if rank == 0 else 5 * second).sum()
    loss.backward()
    seen = hvd.allreduce(loss.detach() + rank, op=hvd.Sum).item()
    for optimizer in optimizers:
        optimizer.step()
    return first.grad.item(), second.grad.item(), seen


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_an_optimizer_meet_nothing_else(ranks):
    assert run_ranks(ranks, _initialized, heads) == [(1, 5 * ranks - 3, ranks * (ranks - 1) // 2)] * ranks


def init_again(rank, path):
    """A world of other ranks than before, which meet by a file."""
    hvd.shutdown()
    dist.destroy_process_group()
    dist.init_process_group("tutti", store=dist.FileStore(path, 2), rank=rank, world_size=2)


def outlives_its_world(rank, path):
    """Two optimizers go on in the next world; between them in the order of making is one that rank 1 has dropped."""
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([one], 1.0), op=hvd.Sum) for one in parameters]
    init_again(rank, f"{path} 2")
    ended = raised_by(optimizers[0].step)
    if rank == 1:
        del parameters[1], optimizers[1]
        gc.collect()
    hvd.init()
    (parameters[0] + 2 * parameters[-1] if rank == 0 else 5 * parameters[-1]).sum().backward()
    optimizers[0].step()
    optimizers[-1].step()
    dropped = raised_by(optimizers[1].step) if rank == 0 else None
    # An optimizer that is made now has the same number on both ranks, and so goes on in a third world.
    last = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([last], 1.0), op=hvd.Sum)
    init_again(rank, f"{path} 3")
    hvd.init()
    (last * (rank + 1)).sum().backward()
    optimizer.step()
    return parameters[0].item(), parameters[-1].item(), last.item(), ended, dropped


def test_optimizers_go_on_after_another_init(tmp_path):
    text = ("ValueError: hvd.DistributedOptimizer: the process group in which the optimizer was made has ended: call "
            "hvd.init() on all ranks, and make an optimizer that one of them has not kept anew")
    assert on_two_ranks(outlives_its_world, str(tmp_path / "store")) == [(-1, -7, -3, text, text),
                                                                         (-1, -7, -3, text, None)]


def drops_optimizers(rank):
    """Rank 1 keeps every optimizer; rank 0 keeps one in two, and its groups end with the others."""
    kept = []
    for step in range(20):
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), op=hvd.Sum)
        (parameter * (rank + 1)).sum().backward()
        optimizer.step()
        assert parameter.item() == -3
        if rank == 1 or step % 2:
            kept.append((parameter, optimizer))
        del parameter, optimizer
        gc.collect()
    hvd.shutdown()
    hvd.init()  # the default group has stayed, and so have the groups in it
    for parameter, optimizer in kept[-1:]:
        (parameter * (rank + 1)).sum().backward()
        optimizer.step()
    return len(dist.distributed_c10d._world.pg_map)


def test_groups_end_with_their_optimizers():
    assert on_two_ranks(drops_optimizers) == [1 + 10, 1 + 20]


def grows(rank):
    """A parameter is unfrozen, and another is added, after the optimizer was made."""
    known, frozen, added = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([known, frozen], 1.0), op=hvd.Sum)
    for step in range(3):
        known.grad = frozen.grad = added.grad = None
        ((known + 2 * frozen + 3 * added) * (rank + 1)).sum().backward()
        optimizer.step()
        if step == 0:
            frozen.requires_grad_(True)
            optimizer.add_param_group({"params": [added]})
    return known.item(), frozen.item(), added.item()


def test_parameters_that_come_later():
    assert on_two_ranks(grows) == [(-9, -12, -18)] * 2


def reduced_once(rank):
    """The later of two optimizers of a parameter reduces its gradient, and the earlier no more."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    for _ in range(2):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), op=hvd.Sum)
    (parameter * (rank + 1)).sum().backward()
    optimizer.step()
    return parameter.item()


def test_an_optimizer_made_anew():
    assert on_two_ranks(reduced_once) == [-3, -3]


def synchronized_before(rank):
    """A step outside skip_synchronize() does not add up again what synchronize() has added up."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        (parameter * (rank + 1)).sum().backward()
        optimizer.synchronize()
        optimizer.step()
    return parameter.item()


def test_a_gradient_is_reduced_once():
    assert on_two_ranks(synchronized_before) == [-6, -6]


def copies(rank):
    """Copies of the model and of the optimizer, by pickle and by copy, are of torch alone and exchange nothing."""
    net = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1))
    net(torch.ones(1, 2)).sum().backward()
    torch.save(net, file := io.BytesIO())
    file.seek(0)
    loaded = torch.load(file, weights_only=False), copy.deepcopy(net)
    for one in loaded:
        one(torch.ones(1, 2)).sum().backward()  # a second backward of the model itself would be an error
    optimizer.step()
    return hasattr(copy.deepcopy(optimizer), "synchronize"), len(pickle.dumps(optimizer)) > 0


def test_copies_exchange_nothing():
    assert on_two_ranks(copies) == [(False, True)] * 2


def misuse(rank):
    net = torch.nn.Linear(2, 1, bias=False)
    named = [("weight", net.weight)]
    texts = [raised_by(hvd.DistributedOptimizer, torch.optim.SGD(net.parameters(), 0.1), **more) for more in (
        {"named_parameters": named * 2}, {"named_parameters": []}, {"backward_passes_per_step": 0}, {"op": hvd.Adasum},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum})]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1))
    net(torch.ones(1, 2)).sum().backward()
    texts.append(raised_by(hvd.DistributedOptimizer, optimizer))
    texts.append(raised_by(optimizer.zero_grad))
    with optimizer.skip_synchronize():
        texts.append(raised_by(optimizer.step))
    texts.append(raised_by(net(torch.ones(1, 2)).sum().backward))
    texts.append(raised_by(optimizer.step))
    embedding = torch.nn.Embedding(3, 2, sparse=True)
    hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), 0.1))
    texts.append(raised_by(embedding(torch.tensor([1])).sum().backward))
    return texts


CHANGED_ON_THE_WAY = ("were changed while they were on their way: call optimizer.synchronize() before gradients are "
                      "clipped or unscaled, and optimizer.step() inside optimizer.skip_synchronize()")


def clips_on_the_way(rank):
    net = torch.nn.Linear(2, 1)
    texts = []
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), compression=compression)
        net(torch.ones(1, 2)).sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        texts.append(raised_by(optimizer.step))
        optimizer.zero_grad()
        net(torch.full((1, 2), 1.0 + rank)).sum().backward()
        optimizer.step()
        texts.append(net.weight.grad.tolist())
    return texts


def test_gradients_that_are_changed_on_their_way_are_named():
    for rank, texts in enumerate(on_two_ranks(clips_on_the_way)):
        error = f"RuntimeError: rank {rank}: 2 gradient(s), the first of shape (1,), {CHANGED_ON_THE_WAY}"
        assert texts == [error, [[1.5, 1.5]]] * 2


def test_misuse_of_the_optimizer_is_named():
    for rank, texts in enumerate(on_two_ranks(misuse)):
        assert texts == [
            "ValueError: hvd.DistributedOptimizer: named_parameters has weight more than once; give "
            "model.named_parameters()",
            "ValueError: hvd.DistributedOptimizer: named_parameters lacks 1 parameters of the optimizer, the first of "
            "shape (1, 2); give the names of all, or leave named_parameters out",
            "ValueError: hvd.DistributedOptimizer: backward_passes_per_step=0; give 1 or more",
            "ValueError: hvd.Adasum: Tutti does not have it; use hvd.Average, or the strategy decentralized of "
            "tutti.torch.DistributedDataParallel, which mixes weights",
            "ValueError: hvd.DistributedOptimizer: gradient_predivide_factor=2.0 is for op=hvd.Average; leave it out",
            "ValueError: hvd.DistributedOptimizer: optimizer is one of hvd.DistributedOptimizer already",
            f"RuntimeError: rank {rank}: optimizer.zero_grad() while gradients are on their way: call optimizer.step() "
            "or optimizer.synchronize() after loss.backward()",
            f"RuntimeError: rank {rank}: optimizer.step() inside optimizer.skip_synchronize(), while gradients are on "
            "their way: call optimizer.synchronize() before",
            f"RuntimeError: rank {rank}: a gradient of shape (1, 2) was computed more than "
            "backward_passes_per_step=1 times before optimizer.step(): give hvd.DistributedOptimizer a larger "
            "backward_passes_per_step",
            f"RuntimeError: rank {rank}: 1 gradient(s), the first of shape (1, 2), {CHANGED_ON_THE_WAY}",
            f"NotImplementedError: hvd.DistributedOptimizer: rank {rank}: the gradient of a parameter of shape (3, 2) "
            "is sparse; make the embedding with sparse=False, or say sparse_as_dense=True"
        ]
