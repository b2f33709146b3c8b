"""Tensors in memory that the ranks of a machine map: tutti.torch.empty, DDP's buckets, FSDP2's collectives."""

import copy
import gc
import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tutti.torch
from ranks import run_ranks
from training_test import Net, expect_equal_replicas, train


def shared_mapping_of(tensor):
    """Whether the tensor's memory is shared with other processes, as /proc knows it."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= address < end:
                return line.split()[1].endswith("s")
    raise AssertionError(f"no mapping has the address {address:#x}")


def uses_empty(rank):
    tensor = tutti.torch.empty(3, 5)
    assert tensor.shape == (3, 5) and tensor.dtype == torch.float32 and tensor.is_contiguous()
    assert shared_mapping_of(tensor) and not shared_mapping_of(torch.empty(3, 5))
    tensor.fill_(rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3, 5), 3.0))
    for dtype in (torch.bool, torch.int64, torch.bfloat16, torch.complex128):
        assert tutti.torch.empty((2, 2), dtype=dtype).dtype == dtype
    assert tutti.torch.empty(0, 7).numel() == 0 and tutti.torch.empty(()).shape == ()
    assert tutti.torch.empty(torch.Size([4])).shape == (4,)
    with pytest.raises(ValueError, match="-1"):
        tutti.torch.empty(-1)
    with pytest.raises(dist.DistBackendError, match="free"):
        tutti.torch.empty(1 << 50)
    with pytest.raises(ValueError, match="64 bits"):
        tutti.torch.empty(1 << 40, 1 << 40)
    gloo = dist.new_group(backend="gloo")
    with pytest.raises(ValueError, match="runs on gloo"):
        tutti.torch.empty(3, group=gloo)
    return True


def test_empty():
    assert run_ranks(2, uses_empty) == [True, True]


def test_empty_under_detail(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    assert run_ranks(2, uses_empty) == [True, True]


def fills_and_frees(rank):
    # 16 GiB of address space hold 100 of these at most: freed memory is used again.
    for _ in range(300):
        tensor = tutti.torch.empty(160 << 20, dtype=torch.uint8)
        tensor[0] = rank
        del tensor
    kept = tutti.torch.empty(4).fill_(7)
    dist.destroy_process_group()
    gc.collect()
    assert kept.sum() == 28  # a tensor outlives its group
    return True


def test_memory_is_used_again():
    assert run_ranks(2, fills_and_frees) == [True, True]


def a_child_lets_a_tensor_go(rank):
    tensor = tutti.torch.empty(1000).fill_(rank)
    child = os.fork()
    if child == 0:
        del tensor
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = tutti.torch.empty(1000).fill_(5)
    assert tensor.eq(rank).all() and other.eq(5).all()
    dist.all_reduce(tensor)
    assert tensor.eq(1).all()
    return True


def test_a_forked_child_frees_nothing():
    assert run_ranks(2, a_child_lets_a_tensor_go) == [True, True]


def buckets_in_the_arena(rank, options):
    addresses = []
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001, **options)
    tutti.torch.register(model, "gradient_allreduce")
    train(model, rank, use=True)  # DDP cuts its buckets anew in this time
    if options:
        addresses = [shared_mapping_of(parameter.grad) for parameter in model.module.parameters()]
        assert addresses and all(addresses)
    expect_equal_replicas(model.module)
    plain = DistributedDataParallel(Net(), **options)
    train(plain, rank, use=True)
    for a, b in zip(plain.module.parameters(), model.module.parameters()):
        assert torch.allclose(a, b, atol=1e-6)
    return True


@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}], ids=str)
def test_buckets_of_ddp(options):
    assert run_ranks(2, buckets_in_the_arena, options) == [True, True]


def buckets_without_room(rank):
    model = DistributedDataParallel(torch.nn.Linear(1000, 1000, bias=False))
    tutti.torch.register(model, "gradient_allreduce")
    blocks = []
    with pytest.raises(dist.DistBackendError, match="TUTTI_ARENA_BYTES"):
        for _ in range(1000):
            blocks.append(tutti.torch.empty(1 << 20, dtype=torch.uint8))
    with pytest.raises(dist.DistBackendError, match="TUTTI_ARENA_BYTES"):
        model(torch.ones(1, 1000)).sum().backward()
    return True


def test_buckets_without_room(monkeypatch):
    monkeypatch.setenv("TUTTI_ARENA_BYTES", "32M")
    assert run_ranks(2, buckets_without_room) == [True, True]


def fsdp2(rank, in_arena):
    net = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5))
    torch.manual_seed(1)
    for parameter in net.parameters():
        torch.nn.init.uniform_(parameter, -0.1, 0.1)
    reference = DistributedDataParallel(copy.deepcopy(net))
    fully_shard(net)
    if in_arena:
        net.set_allocate_memory_from_process_group_for_comm(True)
    gathered = []
    # torch 2.15 has another name for the call of FSDP2.
    name = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
    all_gather = getattr(dist, name)

    def look(output, *arguments, **keywords):
        gathered.append(shared_mapping_of(output))
        return all_gather(output, *arguments, **keywords)

    setattr(dist, name, look)
    try:
        train(net, rank, steps=3)
    finally:
        setattr(dist, name, all_gather)
    train(reference, rank, steps=3)
    assert gathered and all(place == in_arena for place in gathered), gathered
    for a, b in zip(net.parameters(), reference.module.parameters()):
        assert torch.allclose(a.full_tensor(), b, atol=1e-5)
    return True


@pytest.mark.parametrize("in_arena", [False, True])
def test_fsdp2(in_arena):
    assert run_ranks(2, fsdp2, in_arena) == [True, True]


def allocates_for_torch(rank):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    tensor = backend.allocate_tensor(10, dtype=torch.float64, device=torch.device("cpu"))
    assert shared_mapping_of(tensor) and tensor.dtype == torch.float64 and tensor.shape == (10,)
    return True


def test_the_allocator_that_torch_asks_for():
    assert run_ranks(2, allocates_for_torch) == [True, True]
