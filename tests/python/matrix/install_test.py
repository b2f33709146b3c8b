"""`pip install .` from a clean clone, with each torch that `.ci/install` has put into an environment of its own."""

import os
import pathlib
import re
import subprocess

import pytest

SOURCES = pathlib.Path(__file__).parents[3]
DEPS = pathlib.Path(os.environ.get("TUTTI_DEPS") or pathlib.Path.home() / ".cache" / "tutti")

# One rank. torch finds the backend by itself from 2.14 on.
TRAIN = """
import sys, torch, torch.distributed as dist
if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
    import tutti.torch
dist.init_process_group("tutti")
dist.all_reduce(tensor := torch.ones(3))
assert tensor.tolist() == [2, 2, 2], tensor
import tutti
assert "site-packages" in tutti.__file__, tutti.__file__
dist.destroy_process_group()
"""


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= options.pop("environment", {})
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800,
                           env=environment, **options)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def site_packages(name):
    return next((DEPS / name / "lib").glob("python3*/site-packages"))


@pytest.fixture(scope="module", params=["torch-2.11", "torch-2.15"])
def installed(request, tmp_path_factory):
    """A fresh environment with that torch, and the package built and installed in it as the pages say."""
    place = tmp_path_factory.mktemp(request.param)
    run("git", "clone", "--quiet", SOURCES, place / "clone")
    # torch is lent by the environment of `.ci/install`, instead of being installed a second time: 5 GB.
    lend = f"echo {site_packages(request.param)} >$(echo $VIRTUAL_ENV/lib/python3*/site-packages)/torch_of_tutti.pth"
    page = (SOURCES / "tests/install/python_package.sh").read_text()
    script, lent = re.subn("^pip install torch .*", lend, page.replace("~", str(place)), flags=re.M)
    assert lent == 1, page
    run("sh", "-e", "-c", script, cwd=place / "clone", environment={
        "PATH": f"{DEPS / request.param / 'bin'}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    python = place / "tutti-env" / "bin" / "python"
    return request.param, python, place


def test_two_ranks(installed):
    _, python, place = installed
    (place / "train.py").write_text(TRAIN)
    run(python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, place / "train.py", cwd=place)


def test_tools_find_types_and_metadata(installed):
    _, python, place = installed
    files = run(python, "-c", "import importlib.metadata as m; print(*m.files('tutti'), m.version('tutti'))", cwd=place)
    wanted = {"tutti/py.typed", "tutti/_C.pyi", "tutti/lib/libtutti.a", "tutti/include/tutti/communicator.h"}
    assert wanted <= set(files.split())
    assert run(python, "-m", "tutti", "--version", cwd=place).strip() == files.split()[-1]


def test_the_command(installed):
    _, python, place = installed
    text = run(python.parent / "tutti", "launch", "-n", 2, "--tag-output", "--", python, "-m", "tutti", "--version",
               cwd=place)
    version = run(python, "-m", "tutti", "--version", cwd=place).strip()
    assert sorted(line.split()[-1] for line in text.splitlines()) == [version, version], text


@pytest.mark.parametrize("project, program", [("consumer", "consumer"), ("torch_consumer", "train")])
def test_cmake_finds_the_installation(installed, project, program):
    environment, python, place = installed
    folder = run(python, "-c", "import tutti; print(tutti.cmake_dir())", cwd=place).strip()
    assert run(python, "-m", "tutti", "--cmake-dir", cwd=place).strip() == folder
    build = place / project
    run("cmake", "-S", SOURCES / "tests" / "install" / project, "-B", build, "-G", "Ninja", f"-Dtutti_DIR={folder}",
        f"-DTUTTI_TORCH_DIR={site_packages(environment) / 'torch'}")
    run("cmake", "--build", build)
    run(build / program)


def test_the_package_that_owns_the_old_names(installed):
    _, python, place = installed
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "bindings/python/old_names",
        cwd=place / "clone")
    text = run(python.parent / "horovodrun", "-np", 2, python, "docs/examples/old_horovod.py", cwd=place / "clone")
    assert text.endswith(" on 2 ranks\n"), text


def test_another_torch_is_refused(installed):
    environment, python, place = installed
    other = "torch-2.15" if environment == "torch-2.11" else "torch-2.11"
    ended = subprocess.run([str(python), "-c", "import tutti.torch"], capture_output=True, text=True, timeout=120,
                           cwd=place, env=os.environ | {"PYTHONPATH": str(site_packages(other))})
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: tutti was built for torch {environment[6:]}"), ended.stderr
    assert f"torch {other[6:]}" in last and "install tutti again from its sources" in last
