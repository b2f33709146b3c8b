"""The package as a package: what it imports, its version, its type stubs, and a torch that it was not built for."""

import ast
import contextlib
import inspect
import os
import pathlib
import subprocess
import sys
import types

import pytest
import torch

import tutti
from tutti.lightning._register import require
from tutti.torch import _extension

PACKAGE = pathlib.Path(tutti.__file__).parent
SOURCES = pathlib.Path(__file__).parents[2]


def run(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                          env=os.environ | environment)


def test_version():
    line = next(line for line in (SOURCES / "CMakeLists.txt").read_text().splitlines() if "project(tutti" in line)
    assert f"VERSION {tutti.__version__} " in line
    assert _extension.load().__version__ == tutti.__version__
    assert _extension.built_for == torch.__version__.split("+")[0]


def imported_by(statement, before=""):
    program = f"import sys\n{before}\nbefore = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    ended = run(program)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_import_of_tutti_needs_nothing():
    assert imported_by("import tutti") == ["tutti", "tutti._version"]


def test_import_beside_torch_loads_python_of_its_own_alone():
    modules = imported_by("import tutti.torch", before="import torch, torch.distributed")
    assert "tutti._C" not in modules  # the extension module is loaded with the first group
    assert [name for name in modules if name.split(".")[0] != "tutti"] == []


def test_stubs_tell_what_the_extension_module_has():
    extension = _extension.load()
    assert (PACKAGE / "py.typed").exists()
    stub = ast.parse((PACKAGE / "_C.pyi").read_text())

    def public(names):
        return {name for name in names if not name.startswith("_") or name in ("__version__", "__init__")}

    def defined(body):
        names = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        return names | {node.target.id for node in body if isinstance(node, ast.AnnAssign)}

    assert public(defined(stub.body)) == public(vars(extension))
    for node in stub.body:
        if not isinstance(node, ast.ClassDef):
            continue
        own = public(vars(getattr(extension, node.name)))
        if not any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body):
            own.discard("__init__")  # made by create_backend alone
        assert public(defined(node.body)) == own, node.name
        for item in node.body:
            method = getattr(getattr(extension, node.name), item.name)
            assert isinstance(method, property) == any(
                isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in item.decorator_list)
            if isinstance(method, property):
                continue
            # pybind11's own text says the arguments' names, where the binding gives them any.
            for name in [argument.arg for argument in item.args.args[1:]]:
                assert f"{name}:" in method.__doc__ or "arg0" in method.__doc__, (node.name, item.name, name)


def test_every_public_function_has_a_docstring():
    for name in tutti.__all__ + ["torch"]:
        value = getattr(tutti, name)
        assert isinstance(value, str) or inspect.getdoc(value), name


def test_another_torch_is_named():
    major, minor = _extension.built_for.split(".")[:2]
    _extension.check_torch(f"{major}.{minor}.9+cpu")
    other = f"{major}.{int(minor) + 1}.0+cu130"
    with pytest.raises(ImportError) as raised:
        _extension.check_torch(other)
    text = str(raised.value)
    assert f"torch {_extension.built_for}" in text and f"torch {other}" in text
    assert f"pip install 'torch=={major}.{minor}.*', or install tutti again from its sources" in text
    assert text.endswith(": pip install --no-cache-dir --force-reinstall .")  # a wheel's name has no torch in it


def copy_without_extension_module(folder, built_for):
    """The folder of a package that has the real modules, was built for the torch ``built_for``, and has no tutti._C."""
    copy = folder / "tutti"
    copy.mkdir()
    for file in PACKAGE.iterdir():
        if not file.name.startswith(("_C.cpython", "_version")):
            (copy / file.name).symlink_to(file.resolve())
    (copy / "_version.py").write_text(f"__version__ = '{tutti.__version__}'\ntorch_version = '{built_for}'\n")
    return copy


@pytest.mark.parametrize("module", ["tutti.torch", "tutti.accelerate"])
def test_import_without_torch(module):
    ended = run(f"import sys; sys.modules['torch'] = None; import {module}")
    minor = ".".join(_extension.built_for.split(".")[:2])
    assert ended.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: tutti.torch needs PyTorch, and torch is not installed: pip install 'torch=={minor}.*' "
        f"(tutti was built for torch {_extension.built_for})"), ended.stderr


def test_import_under_another_python(tmp_path):
    copy = copy_without_extension_module(tmp_path, torch.__version__)
    (copy / "_C.cpython-399-x86_64-linux-gnu.so").touch()
    ended = run("import tutti.torch; tutti.torch._extension.load()", PYTHONPATH=str(tmp_path))
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tutti has no extension module for this Python, 3."), ended.stderr
    assert "(there is: _C.cpython-399-x86_64-linux-gnu.so): install tutti again from its sources" in last


@pytest.mark.parametrize("how", ["check", "symbol"])
def test_import_under_another_torch(how, tmp_path):
    """The real modules beside an extension module for another torch, which either says so or lacks a symbol."""
    built_for = "9.9.0" if how == "check" else torch.__version__
    copy = copy_without_extension_module(tmp_path, built_for)
    (copy / "_C.py").write_text("raise ImportError('libfoo.so: undefined symbol: _ZN3c10foo')\n")
    ended = run("import tutti.torch; tutti.torch._extension.load()", PYTHONPATH=str(tmp_path))
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: tutti was built for torch " + built_for), ended.stderr
    minor = ".".join(built_for.split(".")[:2])
    assert f"torch {torch.__version__} is installed" in last and f"pip install 'torch=={minor}.*'" in last
    if how == "check":
        assert ended.stderr.count("Traceback") == 1, ended.stderr


OLD_LIGHTNING = """
import tutti.lightning
for _ in range(2):  # a program that has caught the error may try again
    try:
        import pytorch_lightning
    except ImportError as error:
        print(error)
"""


def test_a_lightning_that_is_too_old_is_named(tmp_path):
    (tmp_path / "pytorch_lightning").mkdir()
    (tmp_path / "pytorch_lightning" / "__init__.py").write_text("__version__ = '1.9.5'\n")
    ended = run(OLD_LIGHTNING, PYTHONPATH=f"{tmp_path}:{PACKAGE.parent}")
    text = "tutti.lightning: pytorch_lightning is 1.9.5, and 2.6 or newer is needed: pip install -U lightning"
    assert ended.stdout.splitlines() == [text, text], ended.stderr


@pytest.mark.parametrize("version, fits", [
    ("2.6.3", False), ("2.6", False), ("2.6.4rc1", True), ("2.6.4.dev0", True), ("2.10.0", True)])
def test_versions_of_lightning(version, fits):
    lightning = types.ModuleType("pytorch_lightning")
    lightning.__version__ = version
    with contextlib.nullcontext() if fits else pytest.raises(ImportError, match=f"is {version}, and 2.6.4 or newer"):
        require(lightning, "2.6.4", "test")


def test_cmake_dir_of_a_package_that_is_not_installed():
    if (PACKAGE / "lib").exists():
        pytest.skip("installed by pip: the test of the installation reads cmake_dir")
    with pytest.raises(RuntimeError, match=r"not installed by pip, or in editable mode \(pip install -e\)"):
        tutti.cmake_dir()
    ended = subprocess.run([sys.executable, "-m", "tutti", "--cmake-dir"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "not installed by pip" in ended.stderr
