"""What old scripts import as horovod.torch, on two ranks: numbers, gradients, and what is refused."""

import os

import torch
import torch.distributed as dist

import tutti.compat.horovod.torch as hvd
from horovod_ranks import initialized, on_two_ranks, raised_by
from ranks import run_ranks


# ---- the world ----


def places(rank, nodes):
    os.environ["TUTTI_NODE"] = nodes[rank]
    return initialized(rank, lambda _: (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(),
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


def broadcasts_types(rank):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))
    rate = torch.tensor(0.125 * (1 + rank))
    optimizer = torch.optim.SGD([parameter], rate, momentum=0.9)
    optimizer.state[parameter] = {"momentum_buffer": torch.full((1,), 1.0 + rank / 1024),
                                  "scaled": {"levels": torch.tensor([100 + rank], dtype=torch.uint8)}}
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    state = optimizer.state[parameter]
    assert optimizer.param_groups[0]["lr"] is rate and rate == 0.25, "a rate that is a tensor keeps its place"
    return state["momentum_buffer"].dtype, state["momentum_buffer"].item(), state["scaled"]["levels"].dtype


def test_the_state_of_an_optimizer_keeps_its_types():
    assert on_two_ranks(broadcasts_types) == [(torch.float32, 1.0 + 1 / 1024, torch.uint8)] * 2


def broadcasts(rank):
    """What becomes of values of this rank's own when rank 0 broadcasts them."""
    ordered = {"a": torch.full((3,), 1.0 + rank), "b": torch.full((3,), 10.0 + rank)}
    if rank == 1:
        ordered = {"b": ordered["b"], "a": ordered["a"]}
    hvd.broadcast_parameters(ordered, 0)
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, 1.0 + rank)
    torch.nn.init.constant_(layer.bias, 3.0 + rank)
    found = [ordered["a"].tolist(), ordered["b"].tolist()]
    for params in (list(layer.parameters()), layer.parameters()):
        hvd.broadcast_parameters(params, 0)
        found += [layer.weight.unique().tolist(), layer.bias.unique().tolist()]
        torch.nn.init.constant_(layer.weight, 5.0 + rank)
    texts = []
    for first, other in (({"a": torch.ones(3), "b": torch.ones(3)}, {"a": torch.ones(3), "z": torch.ones(3)}),
                         ({"a": torch.ones(3)}, {"a": torch.ones(3), "z": torch.ones(3)}),
                         ([("a", torch.ones(3)), ("b", torch.ones(3))], [("b", torch.ones(3)), ("a", torch.ones(3))]),
                         ([torch.ones(2, 6), torch.ones(1)], [torch.ones(3, 4), torch.ones(1)]),
                         ([torch.ones(1)], [torch.ones(1)] * 2),
                         ([("a", torch.ones(1))], [("a", torch.ones(1))] * 2),
                         ({"a": torch.ones(1)}, {"a": None})):
        texts.append(raised_by(hvd.broadcast_parameters, first if rank == 0 else other, 0))
    return found, texts


def test_parameters_are_broadcast_by_their_names():
    right = "give all ranks the same parameters, those of a list in one order"
    for found, texts in on_two_ranks(broadcasts):
        assert found == [[1] * 3, [10] * 3, [1], [3], [5], [3]]
        assert texts == [f"ValueError: hvd.broadcast_parameters: rank 1 {difference}; {right}" for difference in (
            "has no b, which rank 0 has",
            "has z, which rank 0 has not",
            "has b float32 (3,) where rank 0 has a float32 (3,)",
            "has parameter[0] float32 (3, 4) where rank 0 has parameter[0] float32 (2, 6)",
            "has parameter[1], which rank 0 has not",
            "has a float32 (1,) where rank 0 has nothing",
            "has a NoneType where rank 0 has a float32 (1,)",
        )]


def gathers_other_rows(rank):
    texts = [raised_by(hvd.allgather, torch.ones(2, 6) if rank == 0 else torch.ones(2, 2, 3)),
             raised_by(hvd.allgather, torch.ones(0, 6) if rank == 0 else torch.ones(2, 3))]
    return texts, hvd.allgather(torch.full((1, 2), rank)).tolist()


def test_rows_of_different_shapes_are_named():
    text = "ValueError: hvd.allgather: rank 1 has rows of shape {} where rank 0 has rows of shape (6,); {}"
    right = "tensors may differ in their first dimension alone"
    assert on_two_ranks(gathers_other_rows) == [([text.format("(2, 3)", right), text.format("(3,)", right)],
                                                 [[0, 0], [1, 1]])] * 2


def mistakes(rank):
    tensor = torch.ones(3)
    return (raised_by(hvd.allreduce, tensor, op="sum"), raised_by(hvd.allreduce, tensor, op=hvd.Adasum), raised_by(hvd.allreduce, tensor, average=True, op=hvd.Sum),
            raised_by(hvd.alltoall, tensor), raised_by(hvd.alltoall, tensor, splits=[1, 1]),
            raised_by(hvd.DistributedOptimizer, torch.nn.Linear(1, 1)))


def test_mistakes_are_named():
    for rank, texts in enumerate(on_two_ranks(mistakes)):
        assert [text.split(";")[0] for text in texts] == [
            "ValueError: hvd.allreduce: op='sum'",
            "ValueError: hvd.Adasum: Tutti does not have it",
            "ValueError: hvd.allreduce: average and op are both given",
            f"ValueError: hvd.alltoall: rank {rank}: tensor has 3 rows, which do not split into 2 equal parts",
            f"ValueError: hvd.alltoall: rank {rank}: splits=[1, 1]",
            "TypeError: hvd.DistributedOptimizer: optimizer is a Linear"
        ]
