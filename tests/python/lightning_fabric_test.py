"""Fabric of Lightning with the strategies of Tutti."""

import os
import pickle

import pytest
import torch
import torch.distributed as dist

import forked_python
import tutti.lightning
import tutti.torch
from launchers import write
from lightning_model import EVERY, WEIGHTS, Model, loader, run_trainers, weights_of


def fabric(strategy, **options):
    from lightning.fabric import Fabric
    made = Fabric(strategy=strategy, accelerator="cpu", devices=int(os.environ["TEST_RANKS"]), **options)
    made.launch()
    return made


def trains(rank, strategy):
    made = fabric(f"tutti:{strategy}")
    module = Model().net
    optimizer = (tutti.torch.QAdam(module.parameters(), 0.05) if strategy == "qadam" else
                 torch.optim.SGD(module.parameters(), 0.05, momentum=0.5))
    model, optimizer = made.setup(module, optimizer)
    data = made.setup_dataloaders(loader(shuffle=True))
    losses = []
    for epoch in range(6):
        for index, (inputs, targets) in enumerate(data):
            with made.no_backward_sync(model, enabled=index % 2 == 0):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                made.backward(loss)
            if index % 2 == 1:
                optimizer.step()
                optimizer.zero_grad()
        losses.append(float(made.all_reduce(loss.detach(), reduce_op="mean")))
    assert losses[-1] < 0.5 * losses[0], losses
    made.save(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), {"model": model})
    saved = torch.load(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), weights_only=True)
    assert list(saved["model"]) == list(module.state_dict())
    made.barrier()
    made.load(os.path.join(os.environ["FABRIC_FOLDER"], "state.ckpt"), {"model": model})
    assert torch.equal(*of_both(module))


@pytest.mark.parametrize("strategy", EVERY)
def test_a_strategy_trains(strategy, tmp_path, monkeypatch):
    monkeypatch.setenv("FABRIC_FOLDER", str(tmp_path))
    run_trainers(2, trains, strategy)


def steps(made, model, optimizer, data, count):
    for inputs, targets in data[:count]:
        optimizer.zero_grad()
        made.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()


def starts(strategy):
    made = fabric(f"tutti:{strategy}")
    module = Model().net
    # Momentum is each rank's own where weights are exchanged, and a checkpoint has that of rank 0.
    momentum = 0 if strategy in WEIGHTS else 0.5
    optimizer = (tutti.torch.QAdam(module.parameters(), 0.05) if strategy.startswith("qadam") else
                 torch.optim.SGD(module.parameters(), 0.05, momentum=momentum))
    return made, module, *made.setup(module, optimizer)


def goes_on(rank, strategy, file):
    """Trains six steps at a stretch, and as three from a checkpoint after three."""
    data = list(loader(count=8 * 6, seed=rank))
    made, module, model, optimizer = starts(strategy)
    steps(made, model, optimizer, data, 3)
    made.save(file, {"model": model, "optimizer": optimizer, "epoch": 7})
    steps(made, model, optimizer, data[3:], 3)
    whole = weights_of(module)
    made, module, model, optimizer = starts(strategy)
    steps(made, model, optimizer, data[3:], 2)  # another model has got elsewhere
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    assert made.load(file, state) == {} and state["epoch"] == 7
    steps(made, model, optimizer, data[3:], 3)
    # DDP cuts its buckets anew after the first step, so that bytegrad's next step rounds values in other groups.
    assert torch.allclose(weights_of(module), whole, atol=0.01 if strategy.startswith("bytegrad") else 1e-6)


@pytest.mark.parametrize("strategy", ["gradient_allreduce", "bytegrad:error_feedback=true", "qadam:warmup_steps=2",
                                      "decentralized", "low_precision_decentralized"])
def test_a_checkpoint_has_the_state_of_the_strategy(strategy, tmp_path):
    run_trainers(2, goes_on, strategy, str(tmp_path / "state.ckpt"))


def saves(rank, strategy, file):
    made, _, model, optimizer = starts(strategy)
    steps(made, model, optimizer, list(loader(count=24, seed=rank)), 3)
    with pytest.raises(ValueError, match="state has the key 'tutti'"):
        made.save(file, {"model": model, "tutti": 1})
    made.save(file, {"model": model, "optimizer": optimizer})


def loads(rank, strategy, file):
    made, _, model, optimizer = starts(strategy)
    made.load(file, {"model": model, "optimizer": optimizer})
    steps(made, model, optimizer, list(loader(count=24, seed=rank)), 3)


@pytest.mark.parametrize("strategy", EVERY)
def test_a_checkpoint_on_another_number_of_ranks(strategy, tmp_path):
    run_trainers(2, saves, strategy, str(tmp_path / "state.ckpt"))
    run_trainers(3, loads, strategy, str(tmp_path / "state.ckpt"))
    run_trainers(2, loads, "decentralized" if strategy == "bytegrad" else strategy, str(tmp_path / "state.ckpt"))


def lacks_states_on_one_rank(rank, strategy, file):
    made, _, model, optimizer = starts(strategy)
    made.load(file, {"model": model})
    saved = torch.load(file, weights_only=False)
    if rank == 1:
        del saved["tutti"]
    torch.save(saved, own := f"{file}.{rank}")
    with pytest.raises(ValueError, match="rank 1 loads a checkpoint with the state of no strategy, and rank 0 one"):
        made.load(own, {"model": model})


@pytest.mark.parametrize("strategy", ["bytegrad", "low_precision_decentralized"])
def test_states_that_one_rank_lacks(strategy, tmp_path):
    run_trainers(2, saves, strategy, str(tmp_path / "state.ckpt"))
    run_trainers(2, lacks_states_on_one_rank, strategy, str(tmp_path / "state.ckpt"), timeout=8)


def warms_up(rank):
    for with_fabric in (True, False):
        for strategy, steps_of_it in (("qadam", 4), ("qadam:hierarchical=false,warmup_steps=7", 7)):
            made, module = fabric(f"tutti:{strategy}"), Model().net
            optimizer = tutti.lightning.QAdamOptimizer(module.parameters(), 0.05, warmup_steps=4)
            model = (made.strategy.wrapper_of(made.setup(module, optimizer)[0]) if with_fabric else
                     tutti.torch.DistributedDataParallel(module, optimizer, strategy))
            assert f"warmup_steps={steps_of_it}," in model.strategy
            for inputs, targets in loader(count=8 * steps_of_it, seed=rank):
                assert not optimizer.frozen
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
            assert optimizer.frozen


def test_qadam_takes_the_warm_up_of_its_optimizer():
    run_trainers(2, warms_up)


def agrees_before_an_evaluation(rank, strategy):
    made, module, model, optimizer = starts(strategy)
    for inputs, targets in loader(count=24, seed=rank):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()  # as with ddp
        optimizer.step()
    made.strategy.flush(model)
    assert torch.equal(*of_both(module))
    if strategy in WEIGHTS:
        model.load_state_dict({name: value + rank for name, value in model.state_dict().items()})
        with pytest.raises(ValueError, match=r"fabric.strategy.wrapper_of\(model\).broadcast\(\)"):
            made.backward(model(inputs).sum())
        made.strategy.wrapper_of(model).broadcast()
        assert torch.equal(*of_both(module))
        made.backward(model(inputs).sum())
    else:
        with pytest.raises(ValueError, match="wrapper_of: model is a _FabricModule in no wrapper"):
            made.strategy.wrapper_of(model)


def of_both(module):
    weights = [torch.empty_like(weights_of(module)) for _ in range(2)]
    dist.all_gather(weights, weights_of(module))
    return weights


@pytest.mark.parametrize("strategy", ["bytegrad", *WEIGHTS])
def test_weights_agree_before_an_evaluation(strategy):
    run_trainers(2, agrees_before_an_evaluation, strategy)


def clips_momentum(rank):
    made, module = fabric("tutti:qadam"), Model().net
    model, optimizer = made.setup(module, tutti.lightning.QAdamOptimizer(module.parameters(), 0.05, warmup_steps=2))
    data = list(loader(count=24, seed=rank))
    for inputs, targets in data:
        optimizer.zero_grad()
        made.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        for limit in ({"max_norm": 1.0}, {"clip_val": 1.0}):
            if optimizer.frozen:
                with pytest.raises(ValueError, match="after the warm-up the gradients are momentum"):
                    made.clip_gradients(model, optimizer, **limit)
            else:
                made.clip_gradients(model, optimizer, **limit)
        optimizer.step()


def test_momentum_is_not_clipped():
    run_trainers(2, clips_momentum)


def takes_options(rank):
    made = fabric("tutti:decentralized,find_unused_parameters=true,broadcast_buffers=false,gradient_as_bucket_view=true")
    module = Model().net
    made.setup(module, torch.optim.SGD(module.parameters(), 0.05))
    with pytest.raises(ValueError, match="decentralized.*static_graph is an option of torch's"):
        module = Model().net
        fabric("tutti:decentralized,static_graph=true").setup(module, torch.optim.SGD(module.parameters(), 0.05))


def test_options_of_ddp():
    run_trainers(1, takes_options)


def takes_arguments_of_lightning(rank):
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import MixedPrecision
    from lightning.fabric.plugins.environments import LightningEnvironment
    from tutti.lightning import of_lightning
    strategy = of_lightning.TuttiFabricStrategy(
        "bytegrad", cluster_environment=LightningEnvironment(), precision=MixedPrecision("bf16-mixed", "cpu"))
    made = Fabric(strategy=strategy, accelerator="cpu", devices=1)
    assert isinstance(made.strategy.cluster_environment, LightningEnvironment)
    assert made.strategy.precision.precision == "bf16-mixed"
    with pytest.raises(ValueError, match="TuttiFabricStrategy: process_group_backend='gloo'; .* leave .* out"):
        of_lightning.TuttiFabricStrategy(process_group_backend="gloo")
    with pytest.raises(TypeError, match="TuttiFabricStrategy: timeout is 5; give a datetime.timedelta"):
        of_lightning.TuttiFabricStrategy(timeout=5)
    with pytest.raises(TypeError, match="no_backward_sync is for a module that fabric.setup has returned.*Linear"):
        made.strategy._backward_sync_control.no_backward_sync(torch.nn.Linear(1, 1), enabled=True)


def test_arguments_of_lightnings_strategy():
    run_trainers(1, takes_arguments_of_lightning)


def declares_the_scale(rank, autotune):
    from lightning.fabric.plugins import MixedPrecision
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    made = fabric(f"tutti:bytegrad,error_feedback=true,autotune={autotune}",
                  plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    modules = [Model().net for _ in range(2)]
    pairs = [made.setup(module, torch.optim.SGD(module.parameters(), 0.05)) for module in modules]
    declared = []
    for number, (model, _) in enumerate(pairs):
        exchange = made.strategy._exchange_of(model._forward_module)
        def declare(scale, number=number, declare=exchange.set_loss_scale):
            if declared[-1:] != [(number, scale)]:  # the scaler of a wrapper declares again
                declared.append((number, scale))
            declare(scale)
        exchange.set_loss_scale = declare
    inputs, targets = next(iter(loader(seed=rank)))
    for _ in range(2):
        for model, optimizer in pairs:
            optimizer.zero_grad()
            made.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
    # The scale grows after every second step, and a loss is not known to be of the one model or of the other.
    assert declared == [(number, scale) for scale in (256, 256, 512, 512) for number in range(2)]
    declared.clear()
    made.backward(torch.nn.functional.mse_loss(pairs[1][0](inputs), targets), model=pairs[1][0])
    assert declared == [(1, 1024)]
    return weights_of(modules[0]).tolist() + weights_of(modules[1]).tolist()


@pytest.mark.parametrize("autotune", ["false", "true"])
def test_exchanges_hear_of_the_loss_scale(autotune):
    mine, others = run_trainers(2, declares_the_scale, autotune)
    assert mine == others


@pytest.mark.parametrize("name", ["tutti_spawn:bytegrad", "bagua_spawn"])
def test_a_strategy_can_be_pickled(name):
    from lightning.fabric import Fabric
    strategy = Fabric(strategy=name, accelerator="cpu", devices=2).strategy
    copy = pickle.loads(pickle.dumps(strategy))
    assert type(copy) is type(strategy) and copy._start_method == "spawn" and len(copy._exchanges) == 0
    assert copy.exchanged_by == strategy.exchanged_by


SPAWNS = """
import os, sys, torch
import tutti.lightning
from lightning.fabric import Fabric

def train(fabric):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    module = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), 0.1))
    for _ in range(3):
        optimizer.zero_grad()
        fabric.backward(model(torch.full((2, 4), 1.0 + fabric.global_rank)).square().mean())
        optimizer.step()
    os.write(1, f"<rank {fabric.global_rank} of {fabric.world_size} weight {module.weight.sum():.4f}>\\n".encode())

if __name__ == "__main__":
    Fabric(strategy=sys.argv[1], accelerator="cpu", devices=2).launch(train)
"""


def test_processes_of_python(tmp_path):
    text = forked_python.run([write(tmp_path, SPAWNS), "tutti_spawn:bytegrad"]).stdout
    lines = sorted(line for line in text.split("\n") if line.startswith("<rank"))
    assert [line.partition(" weight")[0] for line in lines] == ["<rank 0 of 2", "<rank 1 of 2"], text
    assert len({line.split()[-1] for line in lines}) == 1, text


def has_no_optimizer(rank):
    with pytest.raises(ValueError, match="needs the optimizers"):
        fabric("tutti:decentralized").setup(Model().net)
    with pytest.raises(ValueError, match="bytegrad"):
        fabric("tutti:bytegrd")


def test_mistakes():
    run_trainers(1, has_no_optimizer)
