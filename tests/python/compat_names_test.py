"""The old names bagua and horovod: how they are found and refused, and scripts that run as python runs them."""

import importlib.util
import os
import pathlib
import subprocess
import zipfile

import pytest

import forked_python
from launchers import LIMIT, PYTHON, environment, run, write

forked_python.import_once("tutti.torch")
COMPAT = [PYTHON, "-m", "tutti.compat"]
SOURCES = pathlib.Path(__file__).parents[2]


def under_switch(program, **more):
    """What a program does under the switch where torch has been imported before."""
    return forked_python.run(["-m", "tutti.compat", "-c", program], **more)


def last_line(ended):
    return ended.stderr.strip().split("\n")[-1]


def error_of(program, command=(*COMPAT, "-c"), **more):
    """The last line of the error that a program ends with under the switch."""
    return last_line(run([*command, program], expected=1, **more))


# ---- names ----


def test_import_changes_nothing():
    program = """
import sys
before = list(sys.meta_path)
import tutti.compat
assert sys.meta_path == before
print(*{"torch", "lightning", "pytorch_lightning"} & set(sys.modules))
"""
    assert run([PYTHON, "-c", program]).stdout.strip() == ""
    assert error_of("import tutti.compat, bagua",
                    command=(PYTHON, "-c")) == "ModuleNotFoundError: No module named 'bagua'"


def test_activate_twice_is_activate():
    program = """
import os, sys
from multiprocessing import spawn
import tutti.compat
tutti.compat.activate()
state = list(sys.meta_path), spawn.get_preparation_data
tutti.compat.activate()
assert (list(sys.meta_path), spawn.get_preparation_data) == state
import horovod.torch
print(os.environ["TUTTI_COMPAT"])
"""
    assert run([PYTHON, "-c", program]).stdout.strip() == "1"


def test_an_old_name_is_the_module_of_tutti():
    program = """
import horovod.torch as hvd, tutti.compat.horovod.torch, bagua.torch_api.algorithms.bytegrad as bytegrad, pickle
assert hvd is tutti.compat.horovod.torch and hvd.__spec__.name == "tutti.compat.horovod.torch"
print(type(pickle.loads(pickle.dumps(bytegrad.ByteGradAlgorithm()))).__module__)
"""
    assert under_switch(program).stdout == "tutti.compat.bagua.torch_api.algorithms.bytegrad\n"


@pytest.mark.parametrize("statement, text", [
    ("import bagua.torch_api.contrib.fuse", "ImportError: Tutti has no bagua.torch_api.contrib: Tutti exchanges"),
    *((f"from bagua.torch_api.{module} import SyncBatchNorm",
       "ImportError: Tutti has no bagua.torch_api.contrib: Tutti exchanges gradients and weights, and has no data loaders, "
       "caches or fused optimizers; for SyncBatchNorm use tutti.torch.convert_sync_batchnorm(model)")
      for module in ("contrib", "contrib.sync_batchnorm")),
    ("from bagua.torch_api import allreduce",
     "ImportError: Tutti has no bagua.torch_api.allreduce: use the function of"),
    ("from bagua.torch_api.communication import from_torch_group",
     "ImportError: Tutti has no bagua.torch_api.communication: use the function of torch.distributed with the backend "
     "tutti, and bagua.torch_api.init_process_group(); with_bagua takes groups of torch.distributed as they are, in place"),
    ("import bagua.torch_api as b; b.barrier()",
     "AttributeError: Tutti has no bagua.torch_api.barrier: use torch.distributed.barrier()"),
    ("from bagua.torch_api import from_torch_group",
     "ImportError: Tutti has no bagua.torch_api.from_torch_group: with_bagua takes groups of torch.distributed as they are"),
    ("from bagua.torch_api import new_group",
     "ImportError: Tutti has no bagua.torch_api.new_group: use torch.distributed.new_group(ranks), which with_bagua takes"),
    ("from bagua.torch_api import env; env.get_node_rank()",
     "AttributeError: Tutti has no bagua.torch_api.env.get_node_rank: docs/old_names.md says"),
    ("import bagua.torch_api as b; b.BaguaModule",
     "AttributeError: Tutti has no bagua.torch_api.BaguaModule: use model.with"),
    ("from bagua.torch_api import algorithms; algorithms.Algorithm.init('bytegrad')",
     "AttributeError: Tutti has no bagua.torch_api.algorithms.Algorithm: use bytegrad.ByteGradAlgorithm() of"),
    ("from bagua.torch_api.algorithms import GlobalAlgorithmRegistry",
     "ImportError: Tutti has no bagua.torch_api.algorithms.GlobalAlgorithmRegistry: use bytegrad.ByteGradAlgorithm()"),
    ("from bagua.torch_api.algorithms.base import Algorithm",
     "ImportError: Tutti has no bagua.torch_api.algorithms.base: use bytegrad.ByteGradAlgorithm()"),
    ("import horovod.tensorflow as hvd", "ImportError: Tutti has no horovod.tensorflow: Tutti is for PyTorch"),
    ("from horovod.torch import elastic", "ImportError: Tutti has no horovod.torch.elastic: use torchrun --nnodes"),
    ("import bagua.unheard", "ModuleNotFoundError: Tutti has no bagua.unheard: docs/old_names.md says which"),
    ("import horovod.torch as hvd; hvd.SyncBatchNorm(3)",
     "AttributeError: Tutti has no horovod.torch.SyncBatchNorm: use tutti.torch.convert_sync_batchnorm(model)"),
    ("import horovod.torch as hvd; hvd.allgather(1, process_set=hvd.global_process_set)",
     "AttributeError: Tutti has no horovod.torch.global_process_set: use torch.distributed.new_group(ranks)"),
    ("import horovod.torch as hvd; hvd.unheard", "AttributeError: Tutti has no horovod.torch.unheard: docs/old_names"),
])
def test_what_there_is_no_more(statement, text):
    assert last_line(under_switch(statement, expected=1)).startswith(text)


def test_has_attribute_of_what_there_is_no_more():
    program = "import horovod.torch as hvd; print(hasattr(hvd, 'elastic'), hasattr(hvd, 'init'))"
    assert under_switch(program).stdout == "False True\n"


def test_bagua_says_who_a_process_is_at_two_places():
    program = """
import bagua.torch_api as b
from bagua.torch_api.env import get_local_rank, get_local_size, get_rank, get_world_size
assert get_rank is b.get_rank and b.env.get_local_rank is get_local_rank
print(get_rank(), get_world_size(), get_local_rank(), get_local_size())
"""
    assert under_switch(program).stdout == "0 1 0 1\n"


def skip_without(name):
    """Skips a test where a package is not installed; importing Lightning for that would take seconds."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def fake_module(name, **contents):
    """A program that makes a module that can be imported."""
    return f"""
import importlib.machinery, sys, types
module = sys.modules["{name}"] = types.ModuleType("{name}")
module.__spec__ = importlib.machinery.ModuleSpec("{name}", None)
module.__dict__.update({contents})
"""


def test_the_optimizer_of_qadam_is_imported_when_it_is_used():
    program = fake_module("tutti.lightning", QAdamOptimizer="the optimizer") + """
import bagua.torch_api
assert not {"lightning", "pytorch_lightning"} & set(sys.modules)
from bagua.torch_api.algorithms.q_adam import QAdamOptimizer
print(QAdamOptimizer)
"""
    assert under_switch(program).stdout == "the optimizer\n"


def test_arguments_of_old_lightnings_are_activated_once():
    skip_without("lightning")
    program = fake_module("tutti.compat.lightning1") + """
module.activate = lambda: print("activated")
import tutti.compat
tutti.compat.activate()
tutti.compat.activate()
"""
    assert run([PYTHON, "-c", program]).stdout == "activated\n"


# ---- real installations ----


def install(folder, package, distribution, text=""):
    """Puts a package and its metadata into a folder, as pip does."""
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text(text)
    metadata = folder / f"{distribution.replace('-', '_')}-0.9.2.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.9.2\n")
    (metadata / "top_level.txt").write_text("bagua\nhorovod\n")


def path_with(folder):
    return {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"}


def test_a_real_installation_is_refused(tmp_path):
    install(tmp_path, "horovod", "horovod")
    text = error_of("pass", **path_with(tmp_path))
    assert text.startswith(f"ImportError: horovod 0.9.2 is installed ({tmp_path}/horovod/__init__.py), and Tutti"), text
    assert "pip uninstall horovod" in text


def test_a_package_beside_the_script_is_refused_when_it_is_imported(tmp_path):
    (tmp_path / "bagua").mkdir()
    write(tmp_path, "", "bagua/__init__.py")
    text = error_of(write(tmp_path, "import horovod\nimport bagua"), command=COMPAT)
    assert text.startswith(f"ImportError: there is another module bagua ({tmp_path}/bagua/__init__.py)"), text


def test_a_folder_of_that_name_is_no_installation(tmp_path):
    (tmp_path / "horovod").mkdir()
    run([*COMPAT, write(tmp_path, "import horovod.torch")])


OLD_NAMES = SOURCES / "bindings" / "python" / "old_names"


def test_the_wheel_that_owns_the_names(tmp_path):
    """Without the switch; with it; and where a real Bagua is installed over it."""
    for name in "bagua", "horovod", "tutti_old_names":
        install(tmp_path, name, "tutti-old-names", (OLD_NAMES / name / "__init__.py").read_text())
    program = "import os, horovod.torch, bagua.torch_api; print(horovod.torch.__name__, os.environ['TUTTI_COMPAT'])"
    for command in ([PYTHON], COMPAT):
        assert run([*command, "-c", program], **path_with(tmp_path)).stdout == "tutti.compat.horovod.torch 1\n"
    text = run([PYTHON, "-m", "bagua.distributed.launch", "--help"], **path_with(tmp_path)).stdout
    assert "options of Bagua's launcher" in text
    metadata = tmp_path / "bagua-0.9.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bagua\nVersion: 0.9.2\n")
    (metadata / "top_level.txt").write_text("bagua\n")
    text = error_of(program, command=(PYTHON, "-c"), **path_with(tmp_path))
    assert text.startswith("ImportError: bagua 0.9.2 is installed"), text


def project_of_the_wheel():
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((OLD_NAMES / "pyproject.toml").read_text())["project"]


def test_the_commands_of_the_wheel():
    scripts = project_of_the_wheel()["scripts"]
    assert set(scripts) == {"baguarun", "horovodrun"}
    for name, place in scripts.items():
        module, _, function = place.partition(":")
        program = f"import sys, {module}; sys.argv = ['{name}', '--help']; sys.exit({module}.{function}())"
        assert f"usage: {name}" in run([PYTHON, "-c", program], **path_with(OLD_NAMES)).stdout


def test_the_wheel_does_not_ask_pip_for_tutti():
    """`tutti` on PyPI is another project, which pip would install."""
    assert "dependencies" not in project_of_the_wheel()


@pytest.mark.parametrize("statement", [
    "import bagua", "import horovod.torch", "import tutti_old_names as o; o.baguarun()",
    "import tutti_old_names as o; o.horovodrun()"])
@pytest.mark.parametrize("missing", ["tutti", "tutti.compat"])
def test_the_wheel_without_tutti(statement, missing, tmp_path):
    if missing == "tutti.compat":
        install(tmp_path, "tutti", "tutti")  # the other project
    text = error_of(statement, command=(PYTHON, "-c"), PYTHONPATH=f"{OLD_NAMES}:{tmp_path}")
    assert text.startswith(f"ModuleNotFoundError: tutti-old-names needs Tutti, and there is no module {missing}: run "
                           "`pip install .` in the folder of Tutti's sources"), text


# ---- Bagua's algorithms ----


def test_strategies_of_algorithms():
    from tutti.compat.bagua.torch_api import algorithms as a

    class QAdamOptimizer:
        warmup_steps = 7

    for algorithm, strategy in [
        (a.gradient_allreduce.GradientAllReduceAlgorithm(hierarchical=True),
         "gradient_allreduce:hierarchical=true,average=true"),
        (a.bytegrad.ByteGradAlgorithm(average=False), "bytegrad:hierarchical=true,average=false"),
        (a.decentralized.DecentralizedAlgorithm(peer_selection_mode="shift_one", communication_interval=2),
         "decentralized:hierarchical=true,peer_selection_mode=shift_one,communication_interval=2"),
        (a.decentralized.LowPrecisionDecentralizedAlgorithm(),
         "low_precision_decentralized:hierarchical=true,communication_interval=1"),
        (a.q_adam.QAdamAlgorithm(QAdamOptimizer()), "qadam:warmup_steps=7,hierarchical=true"),
        (a.async_model_average.AsyncModelAverageAlgorithm(sync_interval_ms=100),
         "async:peer_selection_mode=all,sync_interval_ms=100,warmup_steps=0"),
    ]:
        assert algorithm.strategy == strategy and strategy in repr(algorithm)
    with pytest.raises(TypeError, match="QAdamAlgorithm: expected a QAdamOptimizer .* and got one of type int"):
        a.q_adam.QAdamAlgorithm(3)


# ---- scripts that run as they are ----

SCRIPTS = {
    "facts": """
import sys
print(sys.argv, sys.path[0], __file__, __name__, __spec__ and __spec__.name, __package__, type(__loader__),
      __builtins__, sorted(globals()), sys.modules["__main__"].__dict__ is globals())
""",
    "error": "def inner():\n    raise ValueError('wrong')\ninner()\n",
    "exit": "import sys\nsys.exit(7)\n",
    "last words": "import sys\nsys.exit('the end')\n",
    "interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "syntax error": "not python\n",
}


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("how", ["script", "module", "link", "folder", "archive", "command"])
def test_runs_as_python_does(how, text, tmp_path):
    (tmp_path / "folder").mkdir()
    write(tmp_path, text, "folder/__main__.py")
    (tmp_path / "folder" / "link.py").symlink_to(write(tmp_path, text, "facts.py"))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", text)
    words = {"script": ["facts.py"], "module": ["-m", "facts"], "link": ["folder/link.py"], "folder": ["folder"],
             "archive": ["archive.zip"], "command": ["-c", text.replace("__file__, ", "")]}[how]
    ends = []
    for command in ([PYTHON], COMPAT):
        ended = subprocess.run([*command, *words, "-m", "1"], cwd=tmp_path, env=environment(), capture_output=True,
                               text=True, timeout=LIMIT)
        ends.append((ended.returncode, ended.stdout, ended.stderr))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("words", [["nosuch.py"], ["-m", "nosuch"]])
def test_what_cannot_be_run(words):
    by_python, by_compat = (run([*command, *words], expected=1) for command in ([PYTHON], COMPAT))
    assert (by_python.returncode, by_python.stderr) == (by_compat.returncode, by_compat.stderr)


# ---- children ----


@pytest.mark.parametrize("fabric, words", [("lightning.fabric", ["script.py"]), ("lightning_fabric", ["-m", "script"])])
def test_lightning_runs_the_script_again_under_the_switch(fabric, words, tmp_path):
    skip_without(fabric.split(".")[0])
    write(tmp_path, f"import {fabric}.strategies.launchers.subprocess_script as l; print(*l._basic_subprocess_cmd())")
    ended = subprocess.run([*COMPAT, *words, "-x"], cwd=tmp_path, env=environment(), capture_output=True, text=True,
                           timeout=LIMIT)
    again = ["-m", "script"] if words[0] == "-m" else [str(tmp_path / "script.py")]
    assert ended.stdout.split() == [PYTHON, "-m", "tutti.compat", *again, "-x"], ended.stderr


POOL = """
import multiprocessing, sys

class Value:
    def __init__(self, number):
        self.number = number

def grow(value):
    return Value(value.number + 1)

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(*[value.number for value in pool.map(grow, [Value(1), Value(2)])])
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_children_send_objects_of_the_script_back(start_method, tmp_path):
    assert run([*COMPAT, write(tmp_path, POOL), start_method]).stdout.strip() == "2 3"


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_spawned_children_find_the_names(start_method, tmp_path):
    """A child runs the script again as __mp_main__, unpickles an object of an old name, and has a child of its own."""
    script = write(tmp_path, """
import multiprocessing, os, sys
import bagua.torch_api.algorithms.bytegrad as bytegrad

def child(algorithm, context, depth):
    print(depth, type(algorithm) is bytegrad.ByteGradAlgorithm, os.environ["TUTTI_COMPAT"], flush=True)
    if depth < 2:
        start(context, depth + 1)

def start(context, depth):
    process = context.Process(target=child, args=(bytegrad.ByteGradAlgorithm(), context, depth))
    process.start()
    process.join()

if __name__ == "__main__":
    start(multiprocessing.get_context(sys.argv[1]), 1)
""")
    assert run([*COMPAT, script, start_method]).stdout == "1 True 1\n2 True 1\n"


def test_workers_of_a_data_loader_find_the_names(tmp_path):
    script = write(tmp_path, """
import bagua.torch_api.algorithms.bytegrad as bytegrad
import torch

class Data(torch.utils.data.Dataset):
    algorithm = bytegrad.ByteGradAlgorithm()

    def __len__(self):
        return 2

    def __getitem__(self, index):
        import horovod.torch
        return index

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="spawn")
    print([batch.item() for batch in loader])
""")
    assert run([*COMPAT, script]).stdout == "[0, 1]\n"


# A script of old Lightnings; it imports both packages' names on every rank.
TRAIN = """
import os, sys, torch
import bagua.torch_api, horovod.torch
import lightning.pytorch as lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_train_end(self):
        os.write(1, f"<rank {self.global_rank} of {self.trainer.world_size}>\\n".encode())

if __name__ == "__main__":
    lightning.Trainer(strategy=sys.argv[1], accelerator="cpu", devices=2, max_steps=1, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 2)))
"""


@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_lightnings_ranks_find_the_names(strategy, tmp_path):
    skip_without("lightning")
    text = run([*COMPAT, write(tmp_path, TRAIN), strategy]).stdout
    assert sorted(line for line in text.split("\n") if line.startswith("<")) == ["<rank 0 of 2>", "<rank 1 of 2>"], text
