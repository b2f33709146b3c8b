"""Every collective of torch.distributed, compared with what one process computes."""

import pytest
import torch
import torch.distributed as dist

from ranks import run_ranks

WORLDS = [1, 2, 3]
REDUCIBLE = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64
]
MOVABLE = REDUCIBLE + [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]


def numbers(rank, count, dtype):
    """Small integers, so that sums are exact in every type."""
    values = (torch.arange(count) * 7 + rank * 3) % 5
    return values.to(dtype) if dtype != torch.bool else values % 2 == 0


def layouts(rank, dtype):
    """Tensors of one value each in memory of several kinds: in order, transposed, with gaps, empty, and one element."""
    yield numbers(rank, 12, dtype)
    yield numbers(rank, 12, dtype).view(3, 4).t()
    yield numbers(rank, 24, dtype)[::2]
    yield numbers(rank, 0, dtype)
    yield numbers(rank, 1, dtype).view(())


def same(a, b):
    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)) \
        if a.dtype in (torch.float8_e4m3fn, torch.float8_e5m2) and a.dim() else torch.equal(
            a.to(torch.complex128), b.to(torch.complex128))


def all_reduces(rank):
    size = dist.get_world_size()
    ops = {
        dist.ReduceOp.SUM: lambda t: t.sum(0),
        dist.ReduceOp.PRODUCT: lambda t: t.prod(0),
        dist.ReduceOp.MIN: lambda t: t.amin(0),
        dist.ReduceOp.MAX: lambda t: t.amax(0),
        dist.ReduceOp.AVG: lambda t: t.sum(0) / size,
    }
    for dtype in REDUCIBLE:
        for op, expected in ops.items():
            for kind, tensor in enumerate(layouts(rank, dtype)):
                all_ranks = torch.stack([list(layouts(r, dtype))[kind] for r in range(size)]).to(torch.float64)
                dist.all_reduce(tensor, op=op)
                right = expected(all_ranks)
                if not dtype.is_floating_point:
                    right = right.trunc()
                assert torch.equal(tensor.to(torch.float64), right.to(dtype).to(torch.float64)), (dtype, op, kind)
    for op, right in ((dist.ReduceOp.BAND, 0), (dist.ReduceOp.BOR, 2**size - 1), (dist.ReduceOp.BXOR, 2**size - 1)):
        bits = torch.full((5,), 1 << rank, dtype=torch.int32)
        dist.all_reduce(bits, op=op)
        assert bits.tolist() == [1 if size == 1 else right] * 5, op
    flags = torch.tensor([True, rank == 0, False])
    dist.all_reduce(flags, op=dist.ReduceOp.MIN)
    assert flags.tolist() == [True, size == 1, False]
    value = torch.tensor([1 + 2j, 3j]) * (rank + 1)
    dist.all_reduce(value)
    assert torch.equal(value, torch.tensor([1 + 2j, 3j]) * sum(range(1, size + 1)))
    scaled = torch.ones(3)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    assert scaled.tolist() == [size / 2] * 3


def moves(rank):
    size = dist.get_world_size()
    for dtype in MOVABLE:
        for kind, tensor in enumerate(layouts(rank, dtype)):
            by_rank = [list(layouts(r, dtype))[kind] for r in range(size)]
            root = size - 1
            sent = tensor.clone()
            dist.broadcast(sent, root)
            assert same(sent, by_rank[root]), (dtype, kind)

            gathered = [torch.zeros_like(tensor) for _ in range(size)]
            dist.all_gather(gathered, tensor)
            assert all(same(a, b) for a, b in zip(gathered, by_rank)), (dtype, kind)

            gathered = [torch.zeros_like(tensor) for _ in range(size)] if rank == root else None
            dist.gather(tensor, gathered, dst=root)
            assert gathered is None or all(same(a, b) for a, b in zip(gathered, by_rank)), (dtype, kind)

            mine = torch.zeros_like(tensor)
            dist.scatter(mine, by_rank if rank == 0 else None, src=0)
            assert same(mine, by_rank[rank]), (dtype, kind)

            received = [torch.zeros_like(tensor) for _ in range(size)]
            dist.all_to_all(received, [tensor] * size)
            assert all(same(a, b) for a, b in zip(received, by_rank)), (dtype, kind)


def reduces(rank):
    size = dist.get_world_size()
    total = sum(range(1, size + 1))
    tensor = torch.full((4, 2), rank + 1.0)
    dist.reduce(tensor, 0)
    assert tensor.unique().tolist() == [total if rank == 0 else rank + 1.0]
    mine = torch.zeros(3)
    dist.reduce_scatter(mine, [torch.full((3,), float(r * (rank + 1))) for r in range(size)])
    assert mine.tolist() == [rank * total] * 3
    mine = torch.zeros(2, 3).t()
    dist.reduce_scatter_tensor(mine, torch.arange(6.0 * size))
    assert torch.equal(mine, (torch.arange(6.0) + 6 * rank).view(3, 2) * size)
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((r + 1,), float(r)) for r in range(size)])
    assert uneven.tolist() == [rank * size] * (rank + 1)


def gathers_into_tensors(rank):
    size = dist.get_world_size()
    whole = torch.zeros(size * 6)
    dist.all_gather_into_tensor(whole, torch.full((6,), float(rank)))
    assert whole.view(size, 6)[:, 0].tolist() == list(range(size))
    own = whole.view(size, 6)[rank]  # in place: the input is this rank's block of the output
    own.fill_(rank + 10)
    dist.all_gather_into_tensor(whole, own)
    assert whole.view(size, 6)[:, 5].tolist() == [r + 10 for r in range(size)]
    uneven = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert [t.tolist() for t in uneven] == [[float(r)] * (r + 1) for r in range(size)]


def uneven_exchanges(rank):
    size = dist.get_world_size()
    send = [(rank + r) % 3 for r in range(size)]
    receive = [(r + rank) % 3 for r in range(size)]
    out = torch.zeros(sum(receive), 2)
    dist.all_to_all_single(out, torch.full((sum(send), 2), float(rank)), receive, send)
    assert out[:, 1].tolist() == [float(r) for r in range(size) for _ in range(receive[r])]
    # Only the last rank sees counts that differ: what it sends to itself.
    counts = [1] * (size - 1) + [2 if rank == size - 1 else 1]
    out = torch.zeros(sum(counts))
    dist.all_to_all_single(out, torch.full((sum(counts),), float(rank)), counts, counts)
    assert out.tolist() == [float(r) for r in range(size) for _ in range(counts[r])]
    rows = torch.arange(2.0 * size)
    dist.all_to_all_single(out := torch.zeros(2 * size), rows)
    assert out.tolist() == [2.0 * rank, 2.0 * rank + 1] * size


def coalesced(rank):
    size = dist.get_world_size()
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.full((n,), float(rank)) for n in (1, 1000, 0, 5)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all(t.eq(sum(range(size))).all() for t in tensors)
    works = dist.batch_isend_irecv([
        dist.P2POp(dist.irecv, got := torch.zeros(100000), (rank - 1) % size),
        dist.P2POp(dist.isend, torch.full((100000,), float(rank)), (rank + 1) % size),
    ])
    for work in works:
        work.wait()
    assert got.unique().tolist() == [(rank - 1) % size]


def coalesced_after_an_error(rank):
    """An error among messages that start together leaves the group usable for the next ones."""
    other = (rank + 1) % dist.get_world_size()
    for _ in range(2):
        with pytest.raises(ValueError, match="tag -5"):
            dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.zeros(2), other, tag=-5)])
        # What batch_isend_irecv does in a process that computes on a GPU.
        with pytest.raises(ValueError, match="tag -5"), dist._coalescing_manager(dist.group.WORLD, torch.device("cpu")):
            dist.irecv(torch.zeros(2), other, tag=-5)
        dist.all_reduce(tensor := torch.ones(2))
        assert tensor.tolist() == [dist.get_world_size()] * 2
    coalesced(rank)


def inputs_within_outputs(rank):
    """The input is a part of the output on all ranks, on one of them, or in another place than the output's block."""
    size = dist.get_world_size()
    expected = [float(r) for r in range(size) for _ in range(3)]
    for place in (0, rank, (rank + 1) % size):
        output = torch.full((3 * size,), -1.0)
        block = output[3 * place:3 * place + 3].fill_(rank)
        dist.all_gather_into_tensor(output, block)
        assert output.tolist() == expected
    for rank_within in range(size):
        output = torch.full((3 * size,), -1.0)
        begin = min(1, 3 * size - 3)
        block = output[begin:begin + 3].fill_(rank) if rank == rank_within else torch.full((3,), float(rank))
        dist.all_gather_into_tensor(output, block)
        assert output.tolist() == expected
        both = torch.arange(3.0 * size)
        block = both[3 * rank:3 * rank + 3] if rank == rank_within else torch.zeros(3)
        dist.reduce_scatter_tensor(block, both)
        assert block.tolist() == [size * (3.0 * rank + i) for i in range(3)]


def splits_on_some_ranks(rank):
    size = dist.get_world_size()
    given = [[2] * size, [2] * size] if rank == 0 else []
    output, tensor = torch.zeros(2 * size), torch.full((2 * size,), float(rank))
    dist.all_to_all_single(output, tensor, *given)
    assert output.tolist() == [float(r) for r in range(size) for _ in range(2)]


def coalesced_with_a_mistake(rank):
    """Nothing is started when one of several tensors is wrong."""
    size = dist.get_world_size()
    inputs = [torch.full((1 << 16,), float(rank)), torch.ones(4)]
    outputs = [[torch.zeros(1 << 16), torch.zeros(4)] for _ in range(size)]
    wrong = [[one, torch.zeros(5)] for one, _ in outputs]
    with pytest.raises(ValueError, match="5 elements"):
        dist.all_gather_coalesced(wrong, inputs)
    dist.barrier()
    assert all(one.count_nonzero() == 0 for one, _ in outputs)
    dist.all_gather_coalesced(outputs, inputs)
    assert [one[0] for one, _ in outputs] == list(range(size))


def read_otherwise(rank):
    """Tensors that torch conjugates or negates when they are read, so that their memory holds other numbers.

    torch.distributed itself hands over copies of them, except in the lists of these calls.
    """
    size = dist.get_world_size()
    root = size - 1
    for lazily, dtype in ((torch.conj, torch.complex64), (torch._neg_view, torch.float32), (torch._neg_view, torch.bfloat16)):
        of_ranks = [lazily(numbers(r, 2 * size, dtype) * (1 + 2j if dtype.is_complex else 1)) for r in range(size)]
        expected = [tensor.resolve_conj().resolve_neg() for tensor in of_ranks]
        mine = of_ranks[rank]

        dist.reduce_scatter(out := torch.zeros(2, dtype=dtype), list(mine.chunk(size)))
        assert torch.equal(out, sum(expected)[2 * rank:2 * rank + 2]), dtype
        uneven = torch.zeros(2 * size if rank == root else 1, dtype=dtype)
        dist.reduce_scatter(uneven, [mine if r == root else mine[:1] for r in range(size)])
        assert torch.equal(uneven, sum(expected)[:len(uneven)]), dtype
        together = lazily(torch.zeros(size, 2 * size, dtype=dtype))
        dist.gather(mine, list(together) if rank == root else None, dst=root)
        assert rank != root or torch.equal(together, torch.stack(expected)), dtype
        if not dtype.is_complex:  # others are refused by torch.distributed itself
            together = lazily(torch.zeros(size, 2 * size, dtype=dtype))
            dist.all_gather(list(together), mine)
            assert torch.equal(together, torch.stack(expected)), dtype
            dist.scatter(out, list(mine.chunk(size)) if rank == root else None, src=root)
            assert torch.equal(out, expected[root][2 * rank:2 * rank + 2]), dtype


def copied_when_written(rank):
    """A tensor that torch copies when it is first written, on rank 0 alone."""
    size = dist.get_world_size()
    original = torch.full((100_000,), rank + 1.0)
    tensor = torch._lazy_clone(original) if rank == 0 else original
    dist.all_reduce(tensor)
    assert tensor.unique().tolist() == [size * (size + 1) / 2]
    tensor = torch._lazy_clone(original) if rank == 0 else original
    dist.broadcast(tensor, size - 1)
    assert tensor.unique().tolist() == [size * (size + 1) / 2]
    assert rank != 0 or original.unique().tolist() == [1]


def sparse(rank):
    size = dist.get_world_size()
    mine = torch.sparse_coo_tensor([[0, rank + 1]], torch.ones(2, 3), (size + 2, 3))
    dist.all_reduce(mine)
    expected = torch.zeros(size + 2, 3)
    expected[0] = size
    expected[1:size + 1] = 1
    assert torch.equal(mine.to_dense(), expected)
    for dtype, large in ((torch.bfloat16, 256), (torch.float16, 2048)):  # where adding 1 alone is rounded away
        mine = torch.sparse_coo_tensor([[0]], torch.tensor([large if rank == 0 else 1], dtype=dtype), (1,))
        dist.all_reduce(mine)
        assert mine.dtype == dtype and mine.to_dense() == torch.tensor(large + size - 1).to(dtype), dtype


def objects(rank):
    size = dist.get_world_size()
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "data": "x" * rank * 1000})
    assert [g["rank"] for g in gathered] == list(range(size))
    told = [rank if rank == 0 else None]
    dist.broadcast_object_list(told, 0)
    assert told == [0]
    mine = [None]
    dist.scatter_object_list(mine, [f"to {r}" for r in range(size)] if rank == 0 else None, 0)
    assert mine == [f"to {rank}"]


def modes(rank):
    size = dist.get_world_size()
    with torch.inference_mode():
        tensor = torch.ones(4, 2).t()
        dist.all_reduce(tensor, async_op=True).wait()
        work = dist.all_reduce(other := torch.ones(2, 4).t(), async_op=True)
        work.get_future().wait()
        assert tensor.unique().tolist() == other.unique().tolist() == [size]
    leaf = torch.ones(3, requires_grad=True)
    dist.all_reduce(leaf.data)
    dist.broadcast(leaf, 0)
    assert leaf.tolist() == [size] * 3 and leaf.requires_grad and leaf.grad_fn is None


def storages_replaced(rank):
    """Calls go on in the memory that they were given, though its tensor has been given other memory since."""
    size, peer = dist.get_world_size(), (rank + 1) % dist.get_world_size()
    calls = [
        lambda tensor: dist.all_reduce(tensor, async_op=True),
        lambda tensor: dist.all_gather_into_tensor(torch.empty(size * len(tensor)), tensor, async_op=True),
        lambda tensor: dist.irecv(tensor, (rank - 1) % size) and dist.isend(torch.zeros(len(tensor)), peer),
    ]
    for call in calls:
        for _ in range(10):
            tensor = torch.ones(1 << 16)
            work = call(tensor)
            tensor.data = torch.zeros(3)
            others = [torch.zeros(1 << 16) for _ in range(4)]  # where the memory lay, had it been freed
            work.wait()
            dist.barrier()
            assert not any(other.any() for other in others)
            assert tensor.tolist() == [0, 0, 0]
    # Results that arrive elsewhere go where the outputs lay when the call was made.
    columns = torch.ones(256, 256).t()[:, :200]
    alias = columns.view_as(columns)
    outputs = [torch.zeros(1000) for _ in range(size)]
    works = [dist.all_reduce(columns, async_op=True), dist.all_gather(outputs, torch.full((1000,), rank + 1.0), async_op=True)]
    columns.data = outputs[0].data = torch.zeros(3)
    for work in works:
        work.wait()
    assert columns.tolist() == [0, 0, 0] and alias.eq(size).all()
    assert [output.unique().tolist() for output in outputs] == [[0], *([rank + 1] for rank in range(1, size))]


def storages_freed_or_cut(rank):
    def cut(size):
        tensor = torch.ones(1000)
        tensor.untyped_storage().resize_(size)
        return tensor

    whole, all_ranks = torch.ones(1000), torch.empty(1000 * dist.get_world_size())
    for size in (0, 400):
        for call in (lambda tensor: dist.all_reduce(tensor),
                     lambda tensor: dist.broadcast(tensor, 0),
                     lambda tensor: dist.all_gather_into_tensor(all_ranks, tensor),
                     lambda tensor: dist.all_gather([tensor] * dist.get_world_size(), whole),
                     lambda tensor: dist.reduce_scatter_tensor(tensor, all_ranks),
                     lambda tensor: dist.irecv(tensor, (rank + 1) % dist.get_world_size())):
            with pytest.raises(ValueError, match=f"reaches to byte 4000 of its storage, which has {size}: the storage"):
                call(cut(size))
    dist.all_reduce(cut(400)[:100])
    dist.all_reduce(whole)
    assert whole.eq(dist.get_world_size()).all()


@pytest.mark.parametrize("size", WORLDS)
@pytest.mark.parametrize(
    "function",
    [all_reduces, moves, reduces, gathers_into_tensors, uneven_exchanges, coalesced, coalesced_after_an_error,
     inputs_within_outputs, splits_on_some_ranks, coalesced_with_a_mistake, read_otherwise, copied_when_written,
     sparse, objects, modes, storages_replaced, storages_freed_or_cut],
    ids=lambda function: function.__name__)
def test_collective(size, function):
    run_ranks(size, function)
