"""The strategies dp and ddp2: a process splits its batch over devices, and *_step_end sees the outputs of all pieces."""

import collections
import os

import pytest
import torch

import tutti.lightning
from lightning_model import Model, loader, pl, run_trainers, trainer, weights_of
from tutti.lightning import _pieces

Pair = collections.namedtuple("Pair", "inputs targets")


def test_scatter():
    batch = {"x": torch.arange(5), "more": [torch.ones(5, 2), (torch.zeros(6), "text")], "pair": Pair(torch.ones(5), 3)}
    first, second = _pieces.scatter(batch, 2)
    assert first["x"].tolist() == [0, 1, 2] and second["x"].tolist() == [3, 4]
    assert first["more"][0].shape == (3, 2) and second["more"][1][0].shape == (3,) and second["more"][1][1] == "text"
    assert isinstance(first["pair"], Pair) and len(first["pair"].inputs) == 3 and first["pair"].targets == 3
    assert len(_pieces.scatter(torch.ones(2), 4)) == 2, "no piece is empty"
    assert len(_pieces.scatter(torch.ones(0), 4)) == 1
    for rows in range(1, 13):
        for devices in (1, 2, 3, 4, 6):
            batch = torch.arange(rows)
            pieces = _pieces.scatter(batch, devices)
            assert [piece.tolist() for piece in pieces] == [chunk.tolist() for chunk in batch.chunk(devices)]
    longer = _pieces.scatter((torch.ones(10), torch.ones(11)), 6)
    assert [len(piece) for _, piece in longer] == [3, 2, 2, 2, 2]
    assert _pieces.scatter(("no tensor", 3), 4) == [("no tensor", 3)]
    assert len(_pieces.scatter((torch.tensor(1.0), torch.ones(4)), 2)) == 2, "a number is in every piece"


def test_gather():
    outputs = [{"loss": torch.tensor(1.0), "features": torch.ones(2, 3), "count": 2, "none": None, "names": ["a"]},
               {"loss": torch.tensor(3.0), "features": torch.ones(1, 3), "count": 1, "none": None, "names": ["b"]}]
    gathered = _pieces.gather(outputs, "validation_step")
    assert gathered["loss"].tolist() == [1, 3] and gathered["features"].shape == (3, 3)
    assert gathered["count"].tolist() == [2, 1] and gathered["none"] is None and gathered["names"] == [["a", "b"]]


def test_lists_that_differ_in_length_are_not_cut():
    outputs = [{"out": (torch.ones(1), ["a", "b"])}, {"out": (torch.ones(1), ["c"])}]
    with pytest.raises(ValueError, match=r"Net.test_step\['out'\]\[1\] is a list of 2, 1 values .* return a tensor with a row"):
        _pieces.gather(outputs, "Net.test_step")


@pytest.mark.parametrize("keys", [("a", "ab", "ab"), ("ab", "a", "ab"), ("ab", "ab", "a")])
def test_values_that_some_pieces_lack_are_not_lost(keys):
    outputs = [{"out": {key: torch.ones(1) for key in of_piece}} for of_piece in keys]
    with pytest.raises(ValueError, match=r"Net.test_step\['out'\] has no 'b' for 1 of the 3 pieces .* return the same keys"):
        _pieces.gather(outputs, "Net.test_step")


@pytest.mark.parametrize("values", [(None, 1.0, 2.0), (1.0, None, None), (None, torch.ones(1), torch.ones(1)),
                                    (torch.tensor(1.0), torch.tensor(2.0), None), (["a"], None, ["b"]), ({}, {}, None)])
def test_values_beside_none_are_not_lost(values):
    without = ", ".join(str(index) for index, value in enumerate(values) if value is None)
    with pytest.raises(ValueError, match=rf"Net.test_step\['out'\] is None for piece {without} of the 3 .* None for all"):
        _pieces.gather([{"out": value} for value in values], "Net.test_step")


class LosesPieces(Model):
    """Returns no loss for the pieces of a batch of two that ``lost`` names."""

    def __init__(self, lost):
        super().__init__()
        self.lost, self.steps = lost, 0

    def training_step(self, batch, batch_idx):
        self.steps += 1
        return None if (self.steps - 1) % 2 in self.lost else self.loss(batch)


@pytest.mark.parametrize("piece", [0, 1])
def test_a_step_with_a_loss_for_some_pieces_is_an_error(piece):
    with pytest.raises(ValueError, match=rf"LosesPieces.training_step is None for piece {piece} of the 2 pieces"):
        trainer("dp", devices=2, max_epochs=1).fit(LosesPieces({piece}), loader())


def test_a_batch_without_a_loss_is_skipped():
    model = LosesPieces({0, 1})
    before = weights_of(model)
    trainer("dp", devices=2, max_epochs=1).fit(model, loader())
    assert model.steps == 16 and torch.equal(weights_of(model), before)


class LogsMeans(Model):
    """Logs the mean of what each step sees: that of an epoch is the mean of all samples."""

    def see(self, batch):
        self.log("mean", batch[0].mean(), on_epoch=True)
        return batch[0].sum(1)

    def training_step(self, batch, batch_idx):
        self.see(batch)
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        return self.see(batch)

    def validation_step_end(self, gathered):
        self.log("end", gathered.mean())

    def test_step(self, batch):
        self.see(batch)


def test_logged_means_count_pieces_by_their_samples():
    fitted, model, data = trainer("dp", devices=4, max_epochs=1), LogsMeans(), loader(13, batch_size=10)
    mean = pytest.approx(float(data.dataset.tensors[0].mean()), abs=1e-6)
    fitted.fit(model, data)
    assert float(fitted.callback_metrics["mean"]) == mean
    validated, = fitted.validate(model, data, verbose=False)
    assert validated["mean"] == mean and validated["end"] / 6 == mean, "a step end counts the whole batch"
    assert fitted.test(model, data, verbose=False)[0]["mean"] == mean


class SeesPieces(Model):
    """Notes the sizes that its steps and step ends see."""

    def __init__(self):
        super().__init__()
        self.pieces, self.ends = [], []

    def training_step(self, batch, batch_idx):
        self.pieces.append(len(batch[0]))
        return {"loss": self.loss(batch), "outputs": self(batch[0])}

    def training_step_end(self, gathered):
        self.ends.append((len(gathered["loss"]), len(gathered["outputs"])))
        return {"loss": gathered["loss"].mean()}

    def validation_step(self, batch, batch_idx):
        return self.loss(batch)

    def validation_step_end(self, gathered):
        assert gathered.shape == (2,)
        self.log("validation", gathered.mean())

    def test_step(self, batch, batch_idx):
        return self.loss(batch)

    def test_step_end(self, gathered):
        assert gathered.shape == (2,)
        self.log("test", gathered.mean())


def test_dp():
    model = SeesPieces()
    fitted = trainer("dp", devices=2, max_epochs=6)
    fitted.fit(model, loader(), loader(16))
    assert fitted.world_size == 1 and len(fitted.strategy.parallel_devices) == 2
    assert model.pieces == [4, 4] * 48, "the batch size is that of the process, half of it for each device"
    assert set(model.ends) == {(2, 8)}
    assert fitted.test(model, loader(16), verbose=False)[0]["test"] < 0.1
    assert torch.cat(fitted.predict(model, loader(16))).shape == (16, 1)


def test_dp_is_one_process_with_the_whole_batch():
    model, alone = Model(), Model()
    trainer("dp", devices=2, max_epochs=2).fit(model, loader())
    trainer("auto", devices=1, max_epochs=2).fit(alone, loader())
    assert torch.allclose(weights_of(model), weights_of(alone), atol=1e-6)


@pytest.mark.parametrize("precision", ["16-true", "bf16-mixed", "bf16-true"])
def test_dp_refuses_16_bit(precision):
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException, match="not for the strategy dp"):
        trainer("dp", devices=2, precision=precision).fit(Model(), loader())


TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "TORCHELASTIC_RUN_ID": "job"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def set_variables(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_dp_is_one_process(monkeypatch):
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException, match="num_nodes=2 asks for more"):
        trainer("dp", devices=2, num_nodes=2).fit(Model(), loader())
    set_variables(monkeypatch, TORCHRUN)
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException, match="a launcher has started 2, each of which"):
        trainer("dp", devices=2).fit(Model(), loader())


@pytest.mark.parametrize("launcher, variables, here", [
    ("torchrun", TORCHRUN, 2),
    ("openmpi", MPIRUN, 2),
    ("openmpi", MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, 1)])
def test_ddp2_is_one_process_on_each_machine(launcher, variables, here, monkeypatch):
    set_variables(monkeypatch, variables)
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException,
                       match=f"rank 0: .* on each of num_nodes=1 machines, and {launcher} has started 2 processes, {here} of "
                             "them on this machine: start one on each machine, by .*--nproc-per-node=1"):
        trainer("ddp2", devices=2)
    if here == 1:
        trainer("ddp2", devices=2, num_nodes=2)


class StepsByItself(Model):
    """Makes the steps of its optimizer by itself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


def refuses_manual_optimization(strategy, **options):
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException,
                       match="StepsByItself has automatic_optimization = False, .* once for each of 2 devices"):
        trainer(strategy, devices=2, max_epochs=1, **options).fit(StepsByItself(), loader())


def test_dp_refuses_manual_optimization():
    refuses_manual_optimization("dp")
    trainer("dp", devices=2).validate(model := StepsByItself(), loader(), verbose=False)
    fitted = trainer("dp", devices=1, max_epochs=1)
    fitted.fit(model, loader())
    assert fitted.global_step == 8


def steps_by_itself_on_a_node(rank):
    os.environ.update(LOCAL_RANK="0", NODE_RANK=str(rank))
    refuses_manual_optimization("ddp2", num_nodes=2)


def test_ddp2_refuses_manual_optimization():
    run_trainers(2, steps_by_itself_on_a_node)


def is_a_node(rank, strategy):
    # Each forked rank is a machine with two devices.
    os.environ.update(LOCAL_RANK="0", NODE_RANK=str(rank))
    model = SeesPieces()
    fitted = trainer(strategy, devices=2, num_nodes=2, max_epochs=2)
    fitted.fit(model, loader(), loader(16))
    assert fitted.world_size == 2 and fitted.global_rank == rank
    assert model.pieces == [4, 4] * 8, "each machine has half of the samples, in batches of 8"
    assert set(model.ends) == {(2, 8)}
    return weights_of(model).tolist()


@pytest.mark.parametrize("algorithm", [None, "bytegrad", "decentralized"])
def test_ddp2(algorithm):
    strategy = "ddp2" if algorithm is None else tutti.lightning.DDP2Strategy(algorithm)
    mine, other = run_trainers(2, is_a_node, strategy)
    assert mine == other


def trains_in_ddp(rank):
    model = Model()
    trainer("ddp", max_epochs=2).fit(model, loader())
    return weights_of(model).tolist()


def test_ddp2_computes_what_ddp_computes_of_the_batches_of_machines():
    assert run_trainers(2, is_a_node, "ddp2")[0] == pytest.approx(run_trainers(2, trains_in_ddp)[0], abs=1e-5)
