"""hvd.DistributedOptimizer on two ranks: what it trains, whose gradients meet, and what is refused."""

import copy
import gc
import io
import pickle

import pytest
import torch
import torch.distributed as dist

import tutti.compat.horovod.torch as hvd
from horovod_ranks import initialized, on_two_ranks, raised_by
from ranks import run_ranks


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
    assert run_ranks(ranks, initialized, heads) == [(1, 5 * ranks - 3, ranks * (ranks - 1) // 2)] * ranks


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
        {"op": "sum"}, {"gradient_predivide_factor": 2.0, "op": hvd.Sum})]
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


CHANGED_ON_THE_WAY = ("were changed or replaced while they were on their way: call optimizer.synchronize() before "
                      "gradients are clipped or unscaled, and optimizer.step() inside optimizer.skip_synchronize()")


def clips(net):
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)


def replaces(net):
    for parameter in net.parameters():
        parameter.grad = parameter.grad.clamp(-1e-3, 1e-3)


def drops(net):
    net.zero_grad()


def changes_on_the_way(rank, change):
    net = torch.nn.Linear(2, 1)
    texts = []
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), compression=compression)
        optimizer.zero_grad()
        net(torch.full((1, 2), 3.0 + rank)).sum().backward()
        change(net)
        texts.append(raised_by(optimizer.step))
        texts.append(net.weight.grad.tolist())
        optimizer.zero_grad()
        net(torch.full((1, 2), 1.0 + rank)).sum().backward()
        optimizer.step()
        texts.append(net.weight.grad.tolist())
    return texts


@pytest.mark.parametrize("change", [clips, replaces, drops])
def test_gradients_that_are_changed_on_their_way_are_named(change):
    for rank, texts in enumerate(on_two_ranks(changes_on_the_way, change)):
        error = f"RuntimeError: rank {rank}: 2 gradient(s), the first of shape (1,), {CHANGED_ON_THE_WAY}"
        assert texts == [error, [[3.5, 3.5]], [[1.5, 1.5]]] * 2


class Flat:
    """A compression that sends the memory of the gradient."""

    @staticmethod
    def compress(tensor):
        return tensor.view(-1), tensor.shape

    @staticmethod
    def decompress(tensor, shape):
        return tensor.view(shape)


def writes_by_data(rank, compression):
    """Rank 0 writes before rank 1 has begun its backward, so that its large gradient has not been read to the end."""
    size = 12 << 20
    parameter = torch.nn.Parameter(torch.zeros(size))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), op=hvd.Sum, compression=compression)
    for write in (lambda: parameter.grad.data.zero_(), lambda: setattr(parameter.grad, "data", torch.zeros(size))):
        optimizer.zero_grad()
        if rank == 1:
            hvd.barrier()
        (parameter * (rank + 1)).sum().backward()
        if rank == 0:
            write()
            hvd.barrier()
        optimizer.step()
    return parameter.unique().tolist(), parameter.grad.unique().tolist()


@pytest.mark.parametrize("compression", [hvd.Compression.none, Flat], ids=["none", "flat"])
def test_what_a_script_writes_by_data_meanwhile_is_overwritten_by_the_average(compression):
    assert on_two_ranks(writes_by_data, compression) == [([-6], [3])] * 2


def trains_in_a_small_arena(rank):
    parameters = [torch.nn.Parameter(torch.zeros(1 << 20)) for _ in range(12)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, 1.0))
    for _ in range(2):
        optimizer.zero_grad()
        sum(parameter.sum() * (rank + 1) for parameter in parameters).backward()
        optimizer.step()
    return [parameter.unique().tolist() for parameter in parameters]


def test_gradients_may_have_more_bytes_than_the_arena(monkeypatch):
    monkeypatch.setenv("TUTTI_ARENA_BYTES", "32M")
    assert on_two_ranks(trains_in_a_small_arena) == [[[-3]] * 12] * 2


# ---- what ranks compare ----


def makes_optimizers(rank):
    """Rank 1 differs from rank 0 in one thing at a time, and a last optimizer that is right works."""
    texts = []
    for names, also in (("ba", ""), ("ac", ""), ("a", ""), ("ab", "another type"), ("ab", "frozen"), ("ba", "no names")):
        names = names if rank == 1 else "ab"
        parameters = {name: torch.nn.Parameter(torch.zeros(2 if also == "no names" and name == "b" else 3))
                      for name in names}
        if rank == 1 and also == "another type":
            parameters["b"] = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        if rank == 1 and also == "frozen":
            parameters["a"].requires_grad_(False)
        texts.append(raised_by(hvd.DistributedOptimizer, torch.optim.SGD(parameters.values(), 1.0),
                               named_parameters=None if also == "no names" else parameters.items()))
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 1.0), named_parameters=[("a", parameter)])
    (parameter * (1 + rank)).sum().backward()
    optimizer.step()
    return texts, parameter.item()


def test_parameters_that_differ_among_ranks_are_named():
    right = "give all ranks' optimizers the same parameters in one order"
    for found in on_two_ranks(makes_optimizers):
        assert found == ([f"ValueError: hvd.DistributedOptimizer: rank 1 {difference}; {right}" for difference in (
            "has b float32 (3,) where rank 0 has a float32 (3,)",
            "has no b, which rank 0 has",
            "has no b, which rank 0 has",
            "has b float64 (3,) where rank 0 has b float32 (3,)",
            "has a float32 (3,) (frozen) where rank 0 has a float32 (3,)",
            "has parameter[0] float32 (2,) where rank 0 has parameter[0] float32 (3,)",
        )], -1.5)


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
            "ValueError: hvd.DistributedOptimizer: op='sum'; give hvd.Average, hvd.Sum, hvd.Min, hvd.Max or hvd.Product",
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
