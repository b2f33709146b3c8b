"""Checkpoints of Lightning with the strategies of Tutti: what is saved, and how a training goes on from it."""

import time
import warnings

import pytest
import torch

import tutti.lightning
import tutti.torch
from lightning_model import EVERY, Model, loader, model_for, pl, run_trainers, trainer, weights_of
from ranks import on_two_nodes

# Rounds of async come at times of their own; in its warm-up a training is exact.
EXACT = [name if not name.startswith("async") else "async:warmup_steps=1000" for name in EVERY]
KEEPS = ["bytegrad:error_feedback=true", "low_precision_decentralized", "qadam"]


def saves(rank, strategy, folder, epochs):
    model = model_for(strategy)
    callback = pl.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, save_last=True)
    trainer(strategy, max_epochs=epochs, enable_checkpointing=True, callbacks=[callback]).fit(model, loader())
    return weights_of(model).tolist()


def resumes(rank, strategy, path, epochs):
    model = model_for(strategy)
    fitted, steps = trainer(strategy, max_epochs=epochs), []
    model.on_train_start = lambda: steps.append(
        getattr(fitted.strategy.model, "step", None) or fitted.strategy._exchange.step)
    # Every rank saves at the end of an epoch here, as the training that was not interrupted has done.
    model.on_train_epoch_end = lambda: fitted.strategy.lightning_module_state_dict()
    fitted.fit(model, loader(), ckpt_path=path)
    assert fitted.current_epoch == epochs
    return weights_of(model).tolist(), steps[0]


@pytest.mark.parametrize("strategy", [*EXACT, "bytegrad:error_feedback=true"])
def test_a_training_goes_on(strategy, tmp_path):
    whole = run_trainers(2, saves, strategy, str(tmp_path / "whole"), 4)
    run_trainers(2, saves, strategy, str(tmp_path / "first"), 2)
    resumed = run_trainers(2, resumes, strategy, str(tmp_path / "first" / "last.ckpt"), 4)
    assert [step for _, step in resumed] == [8, 8], "the strategy goes on at the step of the checkpoint"
    if strategy.endswith("decentralized"):
        # The momentum of rank 0's optimizer is in the checkpoint, and each rank had its own.
        assert resumed[0][0] == pytest.approx(whole[0], abs=0.05)
    elif strategy.startswith("bytegrad"):
        # DDP cuts its buckets anew after the first step, so that step rounds values in other groups.
        assert resumed[0][0] == pytest.approx(whole[0], abs=0.002)
    else:
        assert [weights for weights, _ in resumed] == whole


@pytest.mark.parametrize("strategy", EXACT)
def test_resuming_on_another_number_of_ranks(strategy, tmp_path):
    run_trainers(2, saves, strategy, str(tmp_path), 2)
    for size in (1, 3):
        for weights, step in run_trainers(size, resumes, strategy, str(tmp_path / "last.ckpt"), 3):
            assert step == 8 and all(map(lambda weight: weight == weight, weights))


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_resuming_on_as_many_ranks_of_other_nodes(strategy, tmp_path):
    run_trainers(4, saves, strategy, str(tmp_path), 1, prepare=on_two_nodes())
    for _, step in run_trainers(4, resumes, strategy, str(tmp_path / "last.ckpt"), 2):
        assert step == 2


def test_what_a_checkpoint_holds(tmp_path):
    run_trainers(2, saves, "low_precision_decentralized", str(tmp_path), 1)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    assert list(checkpoint["state_dict"]) == list(Model().state_dict()), "the keys of the module, without a prefix"
    assert [state["strategy"].partition(":")[0] for state in checkpoint["tutti"]] == ["low_precision_decentralized"] * 2
    model = Model()
    model.load_state_dict(checkpoint["state_dict"])


def loads_into_the_wrapper(rank, strategy, path):
    """A checkpoint of Lightning resumes a training without Lightning, and so (states are the same bytes) in C++."""
    checkpoint = torch.load(path, weights_only=False)
    model = model_for(strategy)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer = model.configure_optimizers()
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    wrapped = tutti.torch.DistributedDataParallel(model, optimizer, checkpoint["tutti"][rank]["strategy"])
    wrapped.load_strategy_state([checkpoint["tutti"][rank]])
    assert wrapped.step == 8
    wrapped.check_replicas()


@pytest.mark.parametrize("strategy", ["low_precision_decentralized", "qadam"])
def test_a_checkpoint_is_for_the_wrapper_too(strategy, tmp_path):
    run_trainers(2, saves, strategy, str(tmp_path), 2)
    run_trainers(2, loads_into_the_wrapper, strategy, str(tmp_path / "last.ckpt"))


def changes_strategy(rank, path):
    model = Model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer("decentralized", max_epochs=3).fit(model, loader(), ckpt_path=path)
    told = [str(one.message) for one in caught if "starts anew" in str(one.message)]
    assert len(told) == (rank == 0), told
    assert rank != 0 or ("the state of strategy 'bytegrad:" in told[0] and "this is strategy 'decentralized" in told[0])
    trainer("ddp", max_epochs=4).fit(model, loader(), ckpt_path=path)


def test_a_checkpoint_of_another_strategy(tmp_path):
    run_trainers(2, saves, "bytegrad:error_feedback=true", str(tmp_path), 2)
    run_trainers(2, changes_strategy, str(tmp_path / "last.ckpt"))


def changes_an_option(rank, saved, strategy, path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = trainer(strategy, max_epochs=2)
        fitted.fit(model_for(strategy), loader(), ckpt_path=path)
    told = [str(one.message) for one in caught if "starts anew" in str(one.message)]
    assert len(told) == (rank == 0), told
    assert rank != 0 or f"state of strategy '{saved}" in told[0] and fitted.strategy.algorithm in told[0], told
    assert fitted.current_epoch == 2 and fitted.global_step == 8


@pytest.mark.parametrize("saved, resumed", [
    ("bytegrad:error_feedback=true", "bytegrad:error_feedback=true,codec=bf16"),
    ("gradient_allreduce", "gradient_allreduce:codec=bf16"),
    ("decentralized", "decentralized:communication_interval=2"),
])
def test_a_checkpoint_of_another_option(saved, resumed, tmp_path):
    run_trainers(2, saves, saved, str(tmp_path), 1)
    run_trainers(2, changes_an_option, saved.partition(":")[0], resumed, str(tmp_path / "last.ckpt"))


def gets_other_states_than_rank_0(rank, strategy, folder):
    for kind in ("none", "another strategy", "another option", "damaged"):
        with pytest.raises(ValueError, match="rank 1 loads .*rank 0 one with the state of strategy .*: load the same"):
            trainer(strategy, max_epochs=2).fit(model_for(strategy), loader(), ckpt_path=f"{folder}/{kind}.{rank}.ckpt")


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "decentralized"])
def test_states_that_differ_between_ranks(strategy, tmp_path):
    run_trainers(2, saves, strategy, str(tmp_path), 1)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=False)
    good = checkpoint["tutti"]
    named = good[0]["strategy"]
    for kind, wrong in {"none": None, "another strategy": [{**one, "strategy": "async"} for one in good],
                        "another option": [{**one, "strategy": f"{named}0"} for one in good], "damaged": [{}, 5]}.items():
        for rank, states in enumerate((good, wrong)):
            torch.save({**checkpoint, "tutti": states}, tmp_path / f"{kind}.{rank}.ckpt")
    run_trainers(2, gets_other_states_than_rank_0, strategy, str(tmp_path), timeout=8)


def resumes_from_ddp(rank, strategy, path):
    trainer("ddp", max_epochs=1).fit(fitted := Model(), loader())
    fitted.trainer.save_checkpoint(path)
    trainer(strategy, max_epochs=2).fit(Model(), loader(), ckpt_path=path)


@pytest.mark.parametrize("strategy", ["bytegrad:error_feedback=true", "low_precision_decentralized"])
def test_a_checkpoint_of_ddp(strategy, tmp_path):
    run_trainers(2, resumes_from_ddp, strategy, str(tmp_path / "ddp.ckpt"))


def resumes_mid_epoch(rank, strategy, folder):
    every = pl.callbacks.ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    trainer(strategy, max_epochs=2, enable_checkpointing=True, callbacks=[every]).fit(model_for(strategy), loader())
    model, seen = model_for(strategy), []
    model.on_train_batch_start = lambda batch, batch_idx: seen.append(batch_idx)
    trainer(strategy, max_epochs=2).fit(model, loader(), ckpt_path=f"{folder}/step=3.ckpt")
    assert seen == [3, 0, 1, 2, 3]


@pytest.mark.parametrize("strategy", ["gradient_allreduce", *KEEPS])
def test_resuming_in_the_middle_of_an_epoch(strategy, tmp_path):
    run_trainers(2, resumes_mid_epoch, strategy, str(tmp_path))


def saves_weights_only(rank, strategy, path):
    trainer(strategy, max_epochs=1).fit(model := model_for(strategy), loader())
    model.trainer.save_checkpoint(path, weights_only=True)
    loaded = model_for(strategy)
    trainer(strategy).validate(loaded, loader(16), ckpt_path=path, verbose=False)
    assert weights_of(loaded).tolist() == weights_of(model).tolist()


@pytest.mark.parametrize("strategy", ["decentralized", "qadam"])
def test_weights_alone(strategy, tmp_path):
    run_trainers(2, saves_weights_only, strategy, str(tmp_path / "weights.ckpt"))


def shards(rank, folder):
    model = Model()
    saved = trainer("ddp_sharded", max_epochs=1)
    saved.fit(model, loader())
    saved.save_checkpoint(f"{folder}/sharded.ckpt")
    inner = saved.strategy.optimizers[0].optim
    assert 0 < sum(len(group["params"]) for group in inner.param_groups) < 4, "each rank updates a part of the weights"
    states = torch.load(f"{folder}/sharded.ckpt", weights_only=False)["optimizer_states"]
    assert len(states[0]["state"]) == 4, "the state is saved whole"
    resumed = Model()
    trainer("ddp_sharded", max_epochs=2).fit(resumed, loader(), ckpt_path=f"{folder}/sharded.ckpt")
    return weights_of(resumed).tolist()


def resumes_whole(rank, strategy, folder):
    model = Model()
    trainer(strategy, max_epochs=2).fit(model, loader(), ckpt_path=f"{folder}/sharded.ckpt")
    return weights_of(model).tolist()


def test_sharded_optimizers(tmp_path):
    resumed = run_trainers(2, shards, str(tmp_path))
    assert resumed == run_trainers(2, resumes_whole, "ddp", str(tmp_path)), "stock ddp goes on from the same checkpoint"
    run_trainers(3, resumes_whole, "ddp_sharded", str(tmp_path))
