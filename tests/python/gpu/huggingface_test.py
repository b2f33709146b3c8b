"""Accelerate and the Trainer of transformers on a GPU, in a world of one rank."""

import socket

import pytest
import torch
import torch.distributed as dist

import tutti.accelerate  # noqa: F401  teaches Accelerate the backend
from accelerate import Accelerator, InitProcessGroupKwargs, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def started_by_a_launcher(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    yield
    AcceleratorState._reset_state(True)
    if dist.is_initialized():
        dist.destroy_process_group()


def test_accelerate():
    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
    assert dist.get_backend() == accelerator.state.backend == "tutti"
    assert accelerator.device == GPU and accelerator.distributed_type is DistributedType.MULTI_GPU
    model = torch.nn.Linear(3, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    before = model.weight.detach().clone()
    accelerator.backward(model(torch.ones(4, 3, device=accelerator.device)).square().mean())
    optimizer.step()
    assert before.device == GPU and not torch.equal(model.weight, before)
    assert accelerator.reduce(torch.ones(2, device=GPU), "mean").tolist() == [1, 1]
    accelerator.wait_for_everyone()


def test_transformers(tmp_path):
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):

        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(3, 1)

        def forward(self, inputs, labels):
            outputs = self.net(inputs)
            return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}

    arguments = TrainingArguments(output_dir=tmp_path, ddp_backend="tutti", max_steps=3, optim="sgd", report_to=[],
                                  save_strategy="no", disable_tqdm=True, logging_strategy="no")
    assert arguments.device == GPU and dist.get_backend() == "tutti"
    samples = [{"inputs": torch.full([3], float(i)), "labels": torch.zeros(1)} for i in range(24)]
    model = Net()
    before = model.net.weight.detach().clone()
    Trainer(model=model, args=arguments, train_dataset=samples).train()
    assert model.net.weight.device == GPU and not torch.equal(model.net.weight.cpu(), before)


def test_other_accelerators_are_refused(monkeypatch):
    monkeypatch.setattr("accelerate.state.is_npu_available", lambda: True)
    with pytest.raises(ValueError, match="Accelerate has chosen MULTI_NPU: say Accelerator\\(cpu=True\\)"):
        PartialState(backend="tutti")
