#!/usr/bin/env python3
"""The backend `tutti` of torch.distributed beside gloo: collectives, and training steps of DistributedDataParallel.

    make install-python && cmake --workflow --preset dev
    PYTHONPATH=build/dev/python ~/.cache/tutti/torch-2.11/bin/python3 bench/pytorch/gloo.py [--ranks 2 4] [--rounds 9]
        [--links memory 1gbit]

All variants of a measurement run in one job and in turns, round after round; a round's time is that of the slowest rank.
The table has medians over the rounds, and ratios of medians. Results are checked: those of collectives before they are
timed, and after the steps that the weights of all ranks are equal, and those of exact sums near gloo's. Nothing else may
run on the machine. On a link such as `1gbit` each rank is a host of its own, a network namespace on a link of that speed
(needs root), and only steps are measured. Written are docs/results/pytorch.md, its picture pytorch.svg (needs `.ci/install plots`) and, with every round, pytorch.json.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti.torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "hosts"))
import idle
from links import Hosts, run_ranks
import plot

MEMORY = "memory"
LIMIT_S = 900
MB = 1_000_000
LARGE_BYTES = 80 * MB


def slowest(seconds):
    """The largest of the ranks' times; gloo finds it, whichever variant was timed."""
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=GLOO)
    return worst.item()


def timed(function, repeats):
    """Seconds per call, of the slowest rank; ranks start together."""
    dist.barrier(group=GLOO)
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return slowest((time.perf_counter() - begin) / repeats)


def interleaved(variants, rounds, repeats):
    """{name: [seconds per call in each round]}; `variants` maps names to functions."""
    for function in variants.values():
        function()
        function()
    times = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        turn = number % len(names)  # the speed of a machine drifts
        for name in names[turn:] + names[:turn]:
            times[name].append(timed(variants[name], repeats))
    return times


def checked(name, call, expected, tensor, group):
    """The call as a function, once its result was right: `expected`, where each rank's tensor is full of its number from 1.

    The tensor is then full of zeros, which stay as they are however often they are added.
    """
    tensor.fill_(dist.get_rank() + 1)
    call(tensor, group)
    wrong = (tensor != expected).sum()
    dist.all_reduce(wrong, group=GLOO)  # so that all ranks end here
    if wrong:
        raise SystemExit(f"{name}: {wrong} elements are wrong, over all ranks")
    tensor.zero_()
    return lambda: call(tensor, group)


def all_reduce_large(rounds):
    ordinary, mapped = torch.empty(LARGE_BYTES // 4), tutti.torch.empty(LARGE_BYTES // 4)

    def maximum(tensor, group):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)

    tensors = {"gloo": (ordinary, GLOO), "tutti": (ordinary, None), "tutti, arena": (mapped, None)}
    return interleaved({name: checked(name, maximum, dist.get_world_size(), *where) for name, where in tensors.items()},
                       rounds, 2)


def small(call, expected):
    """`expected` of the number of ranks."""
    def measure(rounds):
        tensor = torch.empty(2)
        return interleaved({name: checked(name, call, expected(dist.get_world_size()), tensor, group)
                            for name, group in (("gloo", GLOO), ("tutti", None))}, rounds, 200)
    return measure


def mlp():
    """20 million parameters: little to compute at small batches, much to exchange."""
    torch.manual_seed(0)
    width = 2236
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def convolutions():
    """Much to compute for few parameters."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(512, 10))


def leaves_gradients(_state, bucket):
    """The exchange of a bucket without any: what is left of DDP's work are its own copies and hooks."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def check_weights(models, exact):
    """Ends the job where weights differ between ranks, or those of the models named `exact` from those of "gloo".

    All models began with the same weights and have made equally many steps.
    """
    weights = {name: torch.nn.utils.parameters_to_vector(model.parameters()).detach() for name, model in models.items()}
    for name, own in weights.items():
        of_ranks = [None] * dist.get_world_size()
        dist.all_gather_object(of_ranks, hashlib.sha256(own.numpy().tobytes()).hexdigest(), group=GLOO)
        if len(set(of_ranks)) > 1:
            raise SystemExit(f"{name}: ranks have other weights after the same steps")
        if name in exact and not torch.allclose(own, weights["gloo"], rtol=1e-3, atol=1e-6):
            raise SystemExit(f"{name}: weights are other ones than with gloo")


def steps(make, inputs, strategies, repeats):
    def measure(rounds):
        own_inputs = inputs * (1 + dist.get_rank())  # gradients that nobody exchanges differ between ranks

        def step_of(model, optimizer=None):
            optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-4)

            def step():
                optimizer.zero_grad()
                model(own_inputs).square().mean().backward()
                optimizer.step()
            return step

        copies = DistributedDataParallel(make())
        copies.register_comm_hook(None, leaves_gradients)
        variants = {"no exchange": step_of(make()), "DDP without exchange": step_of(copies)}
        models = {"gloo": DistributedDataParallel(make(), process_group=GLOO), "tutti": DistributedDataParallel(make())}
        for strategy in strategies:
            models[f"tutti, {strategy}"] = model = DistributedDataParallel(make())
            tutti.torch.register(model, strategy)
        models[f"tutti, {strategies[0]}, views"] = views = DistributedDataParallel(make(), gradient_as_bucket_view=True)
        tutti.torch.register(views, strategies[0])
        variants |= {name: step_of(model) for name, model in models.items()}
        module = make()
        optimizer = torch.optim.SGD(module.parameters(), 1e-4)
        wrapped = tutti.torch.DistributedDataParallel(module, optimizer, strategies[0])
        models[wrapper := f"tutti, wrapper, {strategies[0]}"] = module
        variants[wrapper] = step_of(wrapped, optimizer)
        times = interleaved(variants, rounds, repeats)
        check_weights(models, exact=[name for name in models if "bytegrad" not in name])
        return times
    return measure


def broadcast(tensor, group):
    dist.broadcast(tensor, 0, group=group)


MEASUREMENTS = {
    "all_reduce (max) of 80 MB": all_reduce_large,
    "all_reduce of 8 bytes": small(lambda tensor, group: dist.all_reduce(tensor, group=group), lambda ranks: ranks * (ranks + 1) / 2),
    "broadcast of 8 bytes": small(broadcast, lambda ranks: 1),
    "step of an MLP of 20 M parameters, batch 2": steps(mlp, torch.ones(2, 2236), ["gradient_allreduce", "bytegrad"], 1),
    "step of a small CNN, batch 32": steps(convolutions, torch.ones(32, 3, 32, 32), ["gradient_allreduce"], 10),
}


def run(options):
    """One rank, which torch.distributed knows from the environment."""
    global GLOO
    torch.set_num_threads(1)
    dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=300))
    GLOO = dist.new_group(backend="gloo")
    results = {}
    for name, measure in MEASUREMENTS.items():
        if options.only in name and (options.links == [MEMORY] or "step" in name):
            results[name] = measure(options.rounds)
    if dist.get_rank() == 0:
        pathlib.Path(options.rank_file).write_text(json.dumps(results))
    dist.destroy_process_group()


def measure(size, link, options):
    """Starts the ranks, and returns what rank 0 has written."""
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "results.json")
        command = [sys.executable, __file__, "--rank-file", file, "--links", link, "--rounds", str(options.rounds), "--only",
                   options.only]
        environment = os.environ | {"WORLD_SIZE": str(size), "MASTER_PORT": "29517", "OMP_NUM_THREADS": "1"}

        def start(commands, extra):
            run_ranks(commands, [environment | extra(rank) | {"RANK": str(rank)} for rank in range(size)], LIMIT_S)

        if link == MEMORY:
            start([command] * size, lambda rank: {"MASTER_ADDR": "127.0.0.1"})
        else:
            with Hosts(size, link) as hosts:
                start([hosts.command(rank, command) for rank in range(size)],
                      lambda rank: {"MASTER_ADDR": hosts.address(0), "GLOO_SOCKET_IFNAME": hosts.DEVICE,
                                    "TUTTI_INTERFACE": hosts.DEVICE, "TUTTI_NODE": f"host{rank}"})
        return json.loads(pathlib.Path(file).read_text())


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 0.1 else f"{seconds * 1e3:,.0f}"


def page_of(document):
    lines = [f"""# torch.distributed on tutti beside gloo

{document['date']}, {document['cores']} cores, {document['system']}, torch {document['torch']}, tutti {document['tutti']}.
Written by `bench/pytorch/gloo.py`: medians of {document['rounds']} rounds, in which the
variants took turns; a round's time is that of the slowest rank. Each rank computes on one thread. All rounds are in
`pytorch.json`.

{idle.line([document['in_use']])}

`tutti` is stock code on the backend `tutti`; `tutti, arena` has its tensor from `tutti.torch.empty`; `tutti, bytegrad` is
DDP after `tutti.torch.register(model, "bytegrad")`, `views` with `gradient_as_bucket_view=True` as well, `wrapper`
`tutti.torch.DistributedDataParallel`. `DDP without exchange` has a hook that leaves every bucket as it is: the copies of
stock DDP cost as much, whatever exchanges the buckets. On the link `{MEMORY}` all ranks are on one host; otherwise each is on a
host of its own, a network namespace whose link has that rate. `added` is the time of a step above that of the same step
without any exchange. all_reduce of 80 MB takes the maximum, all_reduce of 8 bytes sums; both take zeros while they are
timed, and other values when they are checked before. After the steps weights were equal on all ranks, and those of exact
sums near gloo's.

| measurement | link | ranks | variant | ms | of gloo's | added, ms | of gloo's |
| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |"""]
    for run_of in document["results"]:
        for name, times in run_of["seconds"].items():
            medians = {variant: statistics.median(rounds) for variant, rounds in times.items()}
            alone = medians.get("no exchange")
            for variant, median in medians.items():
                cells = [name, run_of["link"], str(run_of["ranks"]), variant, milliseconds(median), f"{median / medians['gloo']:.3g}"]
                if alone is None or variant == "no exchange":
                    cells += ["", ""]
                else:
                    added, gloos = median - alone, medians["gloo"] - alone
                    # What is smaller than a fiftieth of the step is lost in the noise of the step itself.
                    cells += [milliseconds(added), f"{added / gloos:.2f}" if gloos > alone / 50 else "too small to tell"]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--links", nargs="+", default=[MEMORY, "1gbit"], help="memory, or rates as tc has them")
    parser.add_argument("--only", default="", help="measure only what has this text in its name, and write no files")
    idle.add_loaded(parser)
    parser.add_argument("--rank-file", help=argparse.SUPPRESS)  # this process is a rank, and rank 0 writes to the file
    options = parser.parse_args()
    if options.rank_file:
        return run(options)
    document = {
        "date": str(datetime.date.today()), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}",
        "torch": torch.__version__, "tutti": tutti.torch._core().__version__, "rounds": options.rounds,
        "in_use": idle.wait_until_idle(options.loaded), "results": [],
    }
    for link in options.links:
        for size in options.ranks:
            document["results"].append({"link": link, "ranks": size, "seconds": measure(size, link, options)})
    page = page_of(document)
    print(page)
    if not options.only:
        results = ROOT / "docs" / "results"
        (results / "pytorch.json").write_text(json.dumps(document, indent=1) + "\n")
        (results / "pytorch.md").write_text(page)
        plot.draw(results)


if __name__ == "__main__":
    main()
