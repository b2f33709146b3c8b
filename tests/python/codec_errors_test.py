"""What codecs do to an average of gradients: what docs/choosing_a_strategy.md says of it, measured."""

import pathlib
import re

import pytest
import ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/choosing_a_strategy.md").read_text(encoding="utf-8")
RANKS = 4
COUNT = RANKS * 128 * 1024  # each rank's chunk is made of whole blocks
KINDS = ("normal", "heavy tails", "outliers")  # columns of the table
BLOCKS = {"bytegrad": 1024, "bytegrad:codec=uint4_block": 128}


def rows():
    """{strategy: (what an element is off by, its errors in percent)}"""
    table = re.findall(r"^\| `([^`]+)` \| 1/\d \| (.*?) \| (.*) \|$", PAGE, re.M)
    return {strategy: (bound, [float(cell.rstrip(" %")) for cell in cells.split(" | ")]) for strategy, bound, cells in table}


def gradients(kind):
    made = torch.distributions.StudentT(3.0).sample((COUNT,)) if kind == "heavy tails" else torch.randn(COUNT)
    if kind == "outliers":
        made[::128] *= 30
    return made


def roundings(rank, strategies):
    """By how much of itself one rounding changes an element at most: ranks with equal gradients have an exact average."""
    measured = []
    for strategy in strategies:
        net = torch.nn.Linear(COUNT, 1, bias=False)
        tutti.torch.register(model := DistributedDataParallel(net), strategy)
        mine = torch.linspace(1, 2, COUNT)  # just above a power of two, rounding takes the largest part of an element
        model(mine.view(1, -1)).sum().backward()
        measured.append(((net.weight.grad.view(-1) - mine) / mine).abs().max().item())
    return measured


def errors(rank, strategies):
    """{strategy: [(error of the average, the largest error of an element over the range of its block), …]}"""
    torch.manual_seed(rank)
    measured = {strategy: [] for strategy in strategies}
    for strategy in strategies:
        net = torch.nn.Linear(COUNT, 1, bias=False)
        tutti.torch.register(model := DistributedDataParallel(net), strategy)
        for kind in KINDS:
            net.weight.grad = None
            mine = gradients(kind)
            dist.all_reduce(exact := mine.clone(), op=dist.ReduceOp.AVG)
            model(mine.view(1, -1)).sum().backward()
            off = net.weight.grad.view(-1) - exact
            blocks = mine.view(-1, BLOCKS.get(strategy, 128))
            dist.all_reduce(span := blocks.amax(1) - blocks.amin(1), op=dist.ReduceOp.MAX)
            of_range = (off.abs().view(blocks.shape).amax(1) / span).max()
            measured[strategy].append(((off.norm() / exact.norm()).item(), of_range.item()))
    return measured


def test_the_errors_that_the_page_names():
    table = rows()
    assert len(table) == 4 and set(BLOCKS) < set(table)
    measured = ranks.run_ranks(RANKS, errors, list(table), timeout=60)[0]
    for strategy, (bound, percents) in table.items():
        for kind, percent, (error, of_range) in zip(KINDS, percents, measured[strategy], strict=True):
            assert 100 * error == pytest.approx(percent, rel=0.2), (strategy, kind)
            if limit := re.fullmatch(r"up to ([\d.]+) % of its block's range", bound):
                assert 100 * of_range < float(limit[1]), (strategy, kind)
        if strategy in BLOCKS:  # the bound is no more than twice what happens
            assert 200 * max(of_range for _, of_range in measured[strategy]) > float(re.search(r"[\d.]+", bound)[0])


def test_the_bounds_of_casts():
    """The advice's column and the table name the bound alike, which is no more than twice what happens."""
    casts = "gradient_allreduce:codec=bf16", "gradient_allreduce:codec=fp16"
    table = rows()
    for strategy, measured in zip(casts, ranks.run_ranks(RANKS, roundings, casts, timeout=60)[0], strict=True):
        named = re.findall(rf"^ *{strategy} .* are rounded by up to ([\d.]+) %", PAGE, re.M)
        assert len(named) >= 2, strategy
        if strategy in table:
            named.append(re.fullmatch(r"up to ([\d.]+) %, twice", table[strategy][0])[1])
        for bound in map(float, named):
            assert bound / 2 < 100 * measured <= bound, strategy
