"""Arguments of Lightning 1's Trainer, its methods and its callbacks, and what today's are given for them."""

import argparse
import os
import warnings

import pytest
import torch

from lightning1 import PACKAGES, QUIET, in_both, lines_of, model_of, run_old
from tutti.compat import deprecation
from tutti.compat.lightning1 import devices, trainer_arguments

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(params=PACKAGES, ids=lambda package: package.__name__)
def mapped(request, monkeypatch, recwarn):
    """Maps arguments of a Trainer; returns today's, the settings and the lines."""
    monkeypatch.setattr(deprecation, "_said", set())
    monkeypatch.setattr(devices, "_has_gpu", lambda: True)
    monkeypatch.delenv(devices.GPUS_VARIABLE, raising=False)

    def apply(**given):
        today, settings = trainer_arguments.for_today(request.param, given)
        lines = lines_of(recwarn)
        recwarn.clear()
        return today, settings, lines

    apply.package = request.param
    return apply


@pytest.mark.parametrize("given, today", [
    ({"gpus": 8, "distributed_backend": "ddp2", "num_nodes": 4},
     {"accelerator": "gpu", "devices": 8, "strategy": "ddp2", "num_nodes": 4}),
    ({"gpus": -1}, {"accelerator": "gpu", "devices": -1}),
    ({"gpus": "0, 1"}, {"accelerator": "gpu", "devices": "0, 1"}),
    ({"gpus": [1, 3]}, {"accelerator": "gpu", "devices": [1, 3]}),
    ({"gpus": 0}, {"accelerator": "cpu"}),
    ({"gpus": None}, {"accelerator": "cpu"}),
    ({"gpus": None, "accelerator": "gpu", "devices": 2}, {"accelerator": "gpu", "devices": 2}),
    ({"gpus": 1, "num_processes": 4}, {"accelerator": "gpu", "devices": 1}),
    ({"gpus": 2, "accelerator": "gpu", "strategy": "ddp"}, {"accelerator": "gpu", "devices": 2, "strategy": "ddp"}),
    ({"gpus": 2, "accelerator": "ddp"}, {"accelerator": "gpu", "devices": 2, "strategy": "ddp"}),
    ({"gpus": 2, "accelerator": "dp"}, {"accelerator": "gpu", "devices": 2, "strategy": "dp"}),
    ({"gpus": 1, "accelerator": "horovod"}, {"accelerator": "gpu", "devices": 1, "strategy": "horovod"}),
    ({"accelerator": "horovod"}, {"accelerator": "cpu", "strategy": "horovod"}),
    ({"accelerator": "ddp_cpu", "num_processes": 2}, {"accelerator": "cpu", "devices": 2, "strategy": "ddp_spawn"}),
    ({"accelerator": "ddp_spawn", "gpus": 2}, {"accelerator": "gpu", "devices": 2, "strategy": "ddp_spawn"}),
    ({"accelerator": None, "strategy": None, "devices": None}, {}),
    ({"strategy": "ddp_fully_sharded"}, {"strategy": "fsdp"}),
    ({"plugins": "ddp_sharded", "gpus": 4, "accelerator": "ddp"},
     {"accelerator": "gpu", "devices": 4, "strategy": "ddp_sharded"}),
    ({"plugins": ["ddp_sharded"], "gpus": 4}, {"accelerator": "gpu", "devices": 4, "strategy": "ddp_sharded"}),
    ({"num_processes": 3}, {"accelerator": "cpu", "devices": 3}),
    ({"tpu_cores": 8}, {"accelerator": "tpu", "devices": 8}),
    ({"tpu_cores": None, "ipus": None, "hpus": None}, {}),
    ({"auto_select_gpus": False, "gpus": 2}, {"accelerator": "gpu", "devices": 2}),
    ({"replace_sampler_ddp": False}, {"use_distributed_sampler": False}),
    ({"amp_backend": "native", "amp_level": None, "precision": 16}, {"precision": 16}),
    ({"weights_summary": None}, {"enable_model_summary": False}),
    ({"weights_summary": "top"}, {"enable_model_summary": True}),
    ({"progress_bar_refresh_rate": 0}, {"enable_progress_bar": False}),
    ({"checkpoint_callback": False, "early_stop_callback": False}, {"enable_checkpointing": False}),
    ({"max_steps": None}, {"max_steps": -1}),
    ({"terminate_on_nan": True}, {"detect_anomaly": True}),
    ({"terminate_on_nan": False, "stochastic_weight_avg": False, "track_grad_norm": -1, "log_gpu_memory": None}, {}),
    ({"reload_dataloaders_every_epoch": True}, {"reload_dataloaders_every_n_epochs": 1}),
    ({"multiple_trainloader_mode": "max_size_cycle", "truncated_bptt_steps": None}, {}),
    ({"profiler": True}, {"profiler": "simple"}),
    ({"sync_batchnorm": True, "deterministic": True, "benchmark": False}, None),
])
def test_arguments(mapped, given, today):
    found, _, lines = mapped(**given)
    assert found == (given if today is None else today)
    old = {name for name in given if name not in found or found[name] != given[name]}
    assert {name for name in given if any(line.startswith(f"Trainer({name}=") for line in lines)} >= old
    assert mapped(**given)[2] == [], "the lines were shown a second time"


@pytest.mark.parametrize("given, launched, strategy", [
    ({}, {}, "horovod"),
    ({"gpus": 1, "strategy": None}, {}, "horovod"),
    ({"strategy": "auto"}, {}, "horovod"),
    ({"gpus": 2, "accelerator": "ddp"}, {}, "ddp"),
    ({}, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None),
    ({}, {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}, None),
    ({}, {"LOCAL_RANK": "1"}, None),
])
def test_ranks_of_mpirun_are_those_of_horovod(mapped, monkeypatch, given, launched, strategy):
    mpirun = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
              "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    for name, value in (mpirun | launched).items():
        monkeypatch.setenv(name, value)
    found, _, lines = mapped(**given)
    assert found.get("strategy") == strategy
    line = 'Trainer() without a strategy under mpirun is of Lightning 1: write Trainer(strategy="horovod")'
    assert (line in lines) == (strategy == "horovod")


def test_the_line_says_what_to_write(mapped):
    assert mapped(gpus=8, distributed_backend="ddp")[2] == [
        'Trainer(distributed_backend="ddp") is of Lightning 1: write Trainer(strategy="ddp")',
        'Trainer(gpus=8) is of Lightning 1: write Trainer(accelerator="gpu", devices=8)'
    ]


@pytest.mark.parametrize("strategy", ["dp", "ddp2"])
def test_the_line_says_that_dp_and_ddp2_refuse_several_gpus(mapped, monkeypatch, strategy):
    line = f'Trainer(accelerator="{strategy}") is of Lightning 1: write Trainer(strategy="{strategy}")'
    assert mapped(gpus=2, accelerator=strategy)[2][0] == (
        f'{line}, which takes one GPU at most today (TUTTI_COMPAT_GPUS=cpu runs it on CPUs), or '
        'Trainer(strategy="ddp") on several')
    monkeypatch.setattr(deprecation, "_said", set())
    monkeypatch.setenv(devices.GPUS_VARIABLE, "cpu")
    assert mapped(gpus=2, accelerator=strategy)[2][0] == line


@pytest.mark.parametrize("places, lines", [
    ({}, 1), ({"LOCAL_RANK": 0, "NODE_RANK": 0}, 1), ({"LOCAL_RANK": 1}, 0), ({"LOCAL_RANK": 0, "NODE_RANK": 1}, 0),
    ({"RANK": 0, "LOCAL_RANK": 1}, 1), ({"RANK": 2, "LOCAL_RANK": 0}, 0), ({"OMPI_COMM_WORLD_RANK": 3}, 0)])
def test_a_line_is_shown_once_and_on_rank_0(monkeypatch, places, lines):
    monkeypatch.setattr(deprecation, "_said", set())
    for name in deprecation._RANKS + deprecation._PLACES:
        monkeypatch.delenv(name, raising=False)
    for name, value in places.items():
        monkeypatch.setenv(name, str(value))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        deprecation.leave_out(["shown before"])
        for text in ("a line", "a line", "shown before"):
            deprecation.say_once(text)
    assert [str(one.message) for one in caught] == ["a line"] * lines


def test_a_strategy_among_the_plugins(mapped):
    strategy = mapped.package.strategies.DDPStrategy(find_unused_parameters=False)
    precision = mapped.package.plugins.HalfPrecision("bf16-true")
    found, _, _ = mapped(gpus=2, accelerator="ddp", plugins=[strategy, precision])
    assert found == {"accelerator": "gpu", "devices": 2, "strategy": strategy, "plugins": [precision]}
    assert mapped(plugins=precision) == ({"plugins": precision}, mapped()[1], [])


def test_callbacks(mapped):
    callbacks = mapped.package.callbacks
    mine = callbacks.LearningRateMonitor()
    found, _, lines = mapped(callbacks=mine, weights_summary="full", progress_bar_refresh_rate=20, process_position=3,
                             log_gpu_memory="all", stochastic_weight_avg=True, track_grad_norm=2,
                             accumulate_grad_batches={0: 8}, early_stop_callback=callbacks.EarlyStopping("loss"),
                             checkpoint_callback=callbacks.ModelCheckpoint())
    by_class = {type(one).__mro__[0 if type(one).__module__.startswith(mapped.package.__name__) else 1].__name__: one
                for one in found.pop("callbacks")}
    assert found == {} and by_class["LearningRateMonitor"] is mine and len(by_class) == 9
    assert by_class["ModelSummary"]._max_depth == -1
    assert (by_class["TQDMProgressBar"].refresh_rate, by_class["TQDMProgressBar"].process_position) == (20, 3)
    assert by_class["GradientAccumulationScheduler"].scheduling == {0: 8}
    assert {"EarlyStopping", "ModelCheckpoint", "DeviceStatsMonitor", "StochasticWeightAveraging"} < by_class.keys()
    assert ('Trainer(weights_summary="full") is of Lightning 1: write Trainer(callbacks=[ModelSummary(max_depth=-1)])'
            in lines)
    assert len(lines) == 9


def test_the_folder_of_checkpoints(mapped, tmp_path):
    (checkpoint,) = mapped(weights_save_path=tmp_path)[0]["callbacks"]
    assert checkpoint.dirpath == str(tmp_path)
    mine = mapped.package.callbacks.ModelCheckpoint(monitor="loss")
    assert mapped(weights_save_path=str(tmp_path), callbacks=[mine])[0] == {"callbacks": [mine]}
    assert mine.dirpath == str(tmp_path)


def test_the_folder_of_checkpoints_beside_the_callback(mapped, tmp_path):
    mine = mapped.package.callbacks.ModelCheckpoint(monitor="loss")
    assert mapped(weights_save_path=tmp_path, checkpoint_callback=mine)[0] == {"callbacks": [mine]}
    assert mine.dirpath == str(tmp_path)
    remote = mapped.package.callbacks.ModelCheckpoint()
    mapped(weights_save_path="memory://there", callbacks=remote)
    assert remote.dirpath == "memory://there"


@pytest.mark.parametrize("off", [{"checkpoint_callback": False}, {"enable_checkpointing": False}])
def test_the_folder_of_no_checkpoints(mapped, tmp_path, off):
    found, _, lines = mapped(weights_save_path=str(tmp_path), **off)
    assert found == {"enable_checkpointing": False}
    assert f'Trainer(weights_save_path="{tmp_path}") is of Lightning 1: leave the argument out' in lines
    mapped.package.Trainer(**found, accelerator="cpu", logger=False)


@pytest.mark.parametrize("given, words", [
    ({"gpus": True}, ["gpus=True", 'Trainer(accelerator="gpu", devices=2)']),
    ({"gpus": "all"}, ['gpus="all"', 'Trainer(accelerator="gpu", devices=2)']),
    ({"gpus": 2, "devices": 2}, ["gpus=2", "contradicts"]),
    ({"gpus": 2, "accelerator": "cpu"}, ["gpus=2", "contradicts"]),
    ({"gpus": 2, "accelerator": "ddp_cpu"}, ["ddp_cpu", 'Trainer(accelerator="cpu", strategy="ddp_spawn", devices=2)']),
    ({"accelerator": "ddp", "distributed_backend": "dp"}, ["distributed_backend", "contradict each other"]),
    ({"plugins": ["ddp_sharded", "ddp"]}, ["plugins", "beside another"]),
    ({"ipus": 4}, ["ipus=4", "Lightning has no IPU"]),
    ({"amp_backend": "apex"}, ["apex", 'precision="16-mixed"']),
    ({"weights_summary": "all"}, ["weights_summary", "ModelSummary(max_depth=…)"]),
    ({"early_stop_callback": True}, ["early_stop_callback", "EarlyStopping(monitor="]),
    ({"truncated_bptt_steps": 2}, ["truncated_bptt_steps=2", "self.automatic_optimization = False"]),
    ({"multiple_trainloader_mode": "min_size"}, ["multiple_trainloader_mode", 'CombinedLoader(loaders, mode=']),
    ({"automatic_optimization": False}, ["automatic_optimization", "in the LightningModule"]),
    ({"auto_scale_batch_size": "fast"}, ["auto_scale_batch_size", 'mode="power"']),
])
def test_what_cannot_be_mapped(mapped, given, words):
    with pytest.raises(ValueError) as caught:
        mapped(**given)
    assert all(word in str(caught.value) for word in words), caught.value


def test_a_machine_without_a_gpu(mapped, monkeypatch):
    monkeypatch.setattr(devices, "_has_gpu", lambda: False)
    with pytest.raises(ValueError) as caught:
        mapped(gpus=2)
    for words in 'write Trainer(accelerator="cpu", devices=2)', "TUTTI_COMPAT_GPUS=cpu":
        assert words in str(caught.value)
    monkeypatch.setenv(devices.GPUS_VARIABLE, "cpu")
    numbers = [(2, 2), ([0, 1, 2], 3), ("0,1", 2), ("3", 3), ("3,", 1), (-1, CORES), ("-1", CORES), ([-1], CORES)]
    for gpus, number in numbers:
        assert mapped(gpus=gpus, auto_select_gpus=True)[0] == {"accelerator": "cpu", "devices": number}
    monkeypatch.setenv(devices.GPUS_VARIABLE, "many")
    with pytest.raises(ValueError, match="TUTTI_COMPAT_GPUS=many: expected cpu"):
        mapped(gpus=2)


def without_a_device(pl, given, has_gpu, variables):
    os.environ |= variables
    devices._has_gpu = lambda: has_gpu
    taken = []

    def connector(accelerator, devices, **others):
        taken.extend([accelerator, devices])
        raise NotImplementedError

    pl.trainer.trainer._AcceleratorConnector = connector
    with pytest.raises(NotImplementedError):
        pl.Trainer(**given)
    return taken


@in_both
@pytest.mark.parametrize("given, has_gpu, variables, accelerator, lines", [
    ({"max_epochs": 3}, True, {}, "cpu", 1),
    ({"accelerator": None, "tpu_cores": None}, True, {}, "cpu", 3),
    ({"gpus": None}, True, {}, "cpu", 1),
    ({}, False, {}, "auto", 0),
    ({"accelerator": "auto"}, True, {}, "auto", 0),
    ({"strategy": "fsdp"}, True, {}, "auto", 0),
    ({}, True, {"PL_TRAINER_ACCELERATOR": "gpu"}, "gpu", 0),
    ({}, True, {"RANK": "0"}, "auto", 0),
    ({}, True, {"HOROVOD_RANK": "0"}, "auto", 0),
])
def test_a_trainer_without_a_device(package, given, has_gpu, variables, accelerator, lines):
    found, said = run_old(without_a_device, package, given, has_gpu, variables)
    assert found == [accelerator, "auto"] and len(said) == lines, said
    ours = ('Trainer(…) that names no device is of Lightning 1, where it trained on the CPU: write '
            'Trainer(accelerator="cpu"), or Trainer(accelerator="gpu", devices=1)')
    assert (ours in said) == (accelerator == "cpu" and "gpus" not in given)


def positional(pl):
    with pytest.raises(TypeError, match="write their names, such as Trainer\\(logger=…\\)"):
        pl.Trainer(False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        pl.Trainer(no_such=1)


@in_both
def test_wrong_arguments(package):
    run_old(positional, package)


def environment(pl):
    os.environ |= {"PL_TRAINER_NUM_PROCESSES": "2", "PL_TRAINER_MAX_STEPS": "7"}
    trainer = pl.Trainer(logger=False)
    return trainer.num_devices, trainer.max_steps


@in_both
def test_the_environment(package):
    assert run_old(environment, package)[0] == (2, 7)


def resumed(pl, folder):
    saved = pl.Trainer(**QUIET)
    saved.fit(model_of(pl)())
    saved.save_checkpoint(f"{folder}/saved.ckpt")
    trainer = pl.Trainer(resume_from_checkpoint=f"{folder}/saved.ckpt", **QUIET | {"max_epochs": 3})
    epochs = []
    trainer.callbacks.append(pl.callbacks.LambdaCallback(on_train_epoch_start=lambda trainer, _: epochs.append(
        trainer.current_epoch)))
    trainer.fit(model_of(pl)(), train_dataloader=model_of(pl)().train_dataloader())
    return epochs


@in_both
def test_resume_from_checkpoint(package, tmp_path):
    epochs, lines = run_old(resumed, package, tmp_path)
    assert epochs == [1, 2]
    assert lines == [
        f'Trainer(resume_from_checkpoint="{tmp_path}/saved.ckpt") is of Lightning 1: '
        f'write trainer.fit(model, ckpt_path="{tmp_path}/saved.ckpt")',
        "Trainer.fit(train_dataloader=…) is of Lightning 1: write fit(train_dataloaders=…)"
    ]


def tuned(pl):
    model = model_of(pl)()
    model.lr, model.batch_size = 1.0, 1
    model.loss = lambda batch: (model.layer(batch) - 1).square().mean()
    model.configure_optimizers = lambda: torch.optim.SGD(model.parameters(), model.lr)
    model.train_dataloader = lambda: torch.utils.data.DataLoader(torch.ones(512, 3), batch_size=model.batch_size)
    trainer = pl.Trainer(auto_lr_find=True, auto_scale_batch_size="power", **QUIET)
    found = trainer.tune(model, lr_find_kwargs={"num_training": 20},
                         scale_batch_size_kwargs={"max_trials": 2, "steps_per_trial": 1})
    only = pl.Trainer(**QUIET)
    with pytest.raises(ValueError, match="neither auto_lr_find nor auto_scale_batch_size"):
        only.tune(model)
    tuned_lr, model.lr = model.lr, 0.75
    only.tuner.lr_find(model, num_training=20)  # changed nothing in Lightning 1
    found_lr, found_size = found["lr_find"].suggestion(), found["scale_batch_size"]
    return found_size == model.batch_size > 1, found_lr == tuned_lr, model.lr == 0.75


@in_both
def test_tune(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the Tuner keeps its files
    found, lines = run_old(tuned, package)
    assert found == (True, True, True)
    assert any("write Tuner(trainer).lr_find(model)" in line for line in lines)


def fails_to_tune(pl):
    from tutti.compat.lightning1.settings import settings_of
    trainer = pl.Trainer(auto_lr_find=True, resume_from_checkpoint="saved.ckpt", **QUIET)
    with pytest.raises(TypeError, match="nosuch"):
        trainer.tune(model_of(pl)(), lr_find_kwargs={"nosuch": 1})
    return settings_of(trainer).ckpt_path


@in_both
def test_a_trainer_whose_tuning_failed_resumes_from_its_checkpoint(package):
    assert run_old(fails_to_tune, package)[0] == "saved.ckpt"


def other_settings(pl):

    class Data(pl.LightningDataModule):

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.ones(2, 3))

    model, data = model_of(pl)(), Data()
    trainer = pl.Trainer(prepare_data_per_node=False, move_metrics_to_cpu=True, **QUIET)
    trainer.fit(model, datamodule=data)
    return (model.prepare_data_per_node, data.prepare_data_per_node, trainer.training_type_plugin is trainer.strategy,
            trainer.get_model() is model)


@in_both
def test_other_settings(package):
    assert run_old(other_settings, package)[0] == (False, False, True, True)


def numbers_of_gpus(pl):
    counts = [pl.Trainer(num_processes=2, accelerator="ddp", logger=False).num_gpus]
    os.environ[devices.GPUS_VARIABLE] = "cpu"
    return [*counts, pl.Trainer(gpus=2, accelerator="ddp", logger=False).num_gpus]


@in_both
def test_the_number_of_gpus(package):
    counts, lines = run_old(numbers_of_gpus, package)
    assert counts == [0, 2]
    assert "trainer.num_gpus is of Lightning 1: write trainer.num_devices, which counts CPU devices, too" in lines


def own_callbacks(pl):
    import pickle

    norms = {}

    class Model(model_of(pl)):

        def log_dict(self, values):
            norms.update({name: value.item() for name, value in values.items()})

    trainer = pl.Trainer(track_grad_norm=1, stochastic_weight_avg=True, **QUIET | {"max_epochs": 2})
    copies = pickle.loads(pickle.dumps(trainer.callbacks[:2]))
    trainer.fit(Model())
    same = [type(one) for one in copies] == [type(one) for one in trainer.callbacks[:2]]
    return norms, trainer.callbacks[0]._swa_lrs, same


@in_both
def test_own_callbacks(package):
    norms, rates, copied = run_old(own_callbacks, package)[0]
    assert norms == {"grad_1.0_norm/layer.weight": 6, "grad_1.0_norm/layer.bias": 2, "grad_1.0_norm_total": 8}
    assert rates == [0.125] and copied


def command_line(pl, words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    parser.add_argument("--max_epochs", type=int, default=3)
    parser = pl.Trainer.add_argparse_args(parser)
    args = parser.parse_args(words)
    trainer = pl.Trainer.from_argparse_args(args, logger=False, enable_checkpointing=False)
    return (args.lr, args.gpus, trainer.max_epochs, trainer.num_devices, trainer.strategy.__class__.__name__,
            trainer.fast_dev_run, trainer.limit_train_batches, trainer.precision)


@in_both
@pytest.mark.parametrize("words, expected", [
    ("", (None, None, 3, 1, "SingleDeviceStrategy", False, 1.0, "32-true")),
    ("--lr 0.5 --gpus 2 --accelerator ddp --max_epochs 5 --limit_train_batches 0.5 --precision bf16",
     (0.5, 2, 5, 2, "DDPStrategy", False, 0.5, "bf16-mixed")),
    ("--gpus 0,1 --distributed_backend ddp --limit_train_batches 7 --replace_sampler_ddp false",
     (None, "0,1", 3, 2, "DDPStrategy", False, 7, "32-true")),
    ("--fast_dev_run", (None, None, 1, 1, "SingleDeviceStrategy", 1, 1, "32-true")),
])
def test_command_line(package, words, expected, monkeypatch):
    monkeypatch.setenv(devices.GPUS_VARIABLE, "cpu")
    value, lines = run_old(command_line, package, words.split())
    assert value == expected
    assert any("gpus" in line for line in lines) == ("gpus" in words), "a line is about what was written"


def of_callbacks(pl, folder):
    path = f"{folder}/{{epoch}}"
    by_path = pl.callbacks.ModelCheckpoint(filepath=path, prefix="mine", period=2, monitor="acc", mode="auto")
    in_folder = pl.callbacks.ModelCheckpoint(filepath=str(folder), save_top_k=None)
    pl.callbacks.GPUStatsMonitor(memory_utilization=True, temperature=True)
    stopping, least = pl.callbacks.EarlyStopping("val_loss", mode="auto"), pl.callbacks.EarlyStopping()
    return (by_path.dirpath, by_path.filename, by_path._every_n_epochs, by_path.mode, in_folder.dirpath,
            in_folder.filename, in_folder.save_top_k, stopping.monitor, stopping.mode, least.monitor)


@in_both
def test_arguments_of_callbacks(package, tmp_path):
    found, lines = run_old(of_callbacks, package, tmp_path)
    here = str(tmp_path)
    assert found == (here, "mine-{epoch}", 2, "max", here, None, 1, "val_loss", "min", "early_stop_on")
    assert f"ModelCheckpoint(filepath='{here}/{{epoch}}') is of Lightning 1: write ModelCheckpoint(dirpath='{here}', " \
        "filename='{epoch}')" in lines
    assert "DeviceStatsMonitor(temperature=True) is of Lightning 1: leave the argument out" in lines
    assert "ModelCheckpoint(period=2) is of Lightning 1: write ModelCheckpoint(every_n_epochs=2)" in lines


def checkpoints_by_position(pl):
    made = (pl.callbacks.ModelCheckpoint("there/{epoch}-{val_loss:.2f}", "val_loss", True, None, 3, False, "auto", 2),
            pl.callbacks.ModelCheckpoint("there/best", monitor="acc", mode="auto"),
            pl.callbacks.ModelCheckpoint("there", "{epoch}", "val_loss"))
    return [(os.path.relpath(one.dirpath), one.filename, one.monitor, one.mode, one.verbose, one.save_top_k,
             one._every_n_epochs) for one in made]


@in_both
def test_arguments_of_checkpoints_by_position(package):
    found, lines = run_old(checkpoints_by_position, package)
    assert found == [("there", "{epoch}-{val_loss:.2f}", "val_loss", "min", True, 3, 2),
                     ("there", "best", "acc", "max", False, 1, 1), ("there", "{epoch}", "val_loss", "min", False, 1, 1)]
    assert ("ModelCheckpoint('there/{epoch}-{val_loss:.2f}', 'val_loss', True, None, 3, False, 'auto', 2) is of Lightning "
            "1: write names, ModelCheckpoint(…, monitor='val_loss', verbose=True, save_last=None, save_top_k=3, "
            "save_weights_only=False, mode='auto', period=2)") in lines
