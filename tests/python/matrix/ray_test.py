"""Ray Train with TorchConfig(backend="tutti"), on a local cluster of several Ray nodes."""

import os
import pathlib
import subprocess
import sys
import tomllib

import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from launchers import LIMIT, PYTHON, environment, write

pytest.importorskip("ray", reason="Ray is not installed: run .ci/install matrix")
SOURCES = pathlib.Path(__file__).parents[3]

TRAIN = """
import os, sys, ray, ray.train
from ray.cluster_utils import Cluster
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

def train(config):
    import torch, torch.distributed as dist
    import ray.train.torch
    assert dist.get_backend() == "tutti", dist.get_backend()
    context = ray.train.get_context()
    assert dist.get_rank() == context.get_world_rank() and dist.get_world_size() == 3
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    dist.all_gather(all := [torch.empty_like(weights) for _ in range(3)], weights)
    assert torch.equal(all[0], all[1]) and torch.equal(all[0], all[2])
    dist.all_gather_object(nodes := [None] * 3, ray.get_runtime_context().get_node_id())
    # A second group in the same process: RANK and WORLD_SIZE are set now, by Ray.
    assert os.environ["RAY_JOB_ID"] and os.environ["WORLD_SIZE"] == "3"
    group = dist.new_group()
    dist.all_reduce(one := torch.ones(1), group=group)
    assert one == 3
    if dist.get_rank() == 0:
        print(f"{len(set(nodes))} nodes", file=open(config["done"], "w"))

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
try:
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=True)
    scaling = ScalingConfig(num_workers=3, placement_strategy="STRICT_SPREAD", resources_per_worker={"CPU": 0.5},
                            trainer_resources={"CPU": 0} if os.environ.get("RAY_TRAIN_V2_ENABLED") == "0" else None)
    result = TorchTrainer(train, train_loop_config={"done": sys.argv[2]}, scaling_config=scaling, torch_config=TorchConfig(backend="tutti"),
                          run_config=RunConfig(storage_path=sys.argv[1])).fit()
    assert result.error is None, result.error
finally:
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14),
                    reason="before 2.14 torch does not find backends by itself")
def test_three_nodes(tmp_path):
    # The entry point, as pip would install it: Ray's workers make the process group before they run the user's code.
    entry_points = tomllib.loads((SOURCES / "pyproject.toml").read_text())["project"]["entry-points"]
    information = tmp_path / "site" / "tutti-0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: tutti\nVersion: 0\n")
    (information / "entry_points.txt").write_text("\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in entry_points.items()))
    paths = os.pathsep.join([str(tmp_path / "site"), os.environ["PYTHONPATH"]])
    ended = subprocess.run([PYTHON, write(tmp_path, TRAIN), str(tmp_path / "results"), str(tmp_path / "done")], capture_output=True, text=True,
                           timeout=3 * LIMIT, env=environment(PYTHONPATH=paths, RAY_USAGE_STATS_ENABLED="0"))
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert (tmp_path / "done").read_text() == "3 nodes\n"
