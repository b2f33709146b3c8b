"""What the machine has: a GPU, its driver, NCCL, a Python with torch; and how the programs of the bundle run on it."""

import contextlib
import glob
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

BUNDLE = pathlib.Path(__file__).resolve().parent
BIN = BUNDLE / "bin"
# The folders in which the Python that runs this prints where it keeps packages, one per line.
SITES = "import site, sys; print('\\n'.join([*sys.path, *site.getsitepackages(), site.getusersitepackages()]))"


def output_of(command, environment=None, timeout_s=60):
    """The exit status and the output of a command; None for the status of one that cannot be run or does not end."""
    try:
        done = subprocess.run([str(part) for part in command], env=environment, timeout=timeout_s, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return done.returncode, done.stdout


def pythons():
    """Pythons that may have torch, the one that runs this first."""
    found = [sys.executable] + [shutil.which(name) for name in ("python3.12", "python3", "python")]
    return list(dict.fromkeys(path for path in found if path))


def find_nccl():
    """The path of NCCL: as TUTTI_NCCL_LIBRARY says, or in the packages of a Python; None: let the system find one."""
    if os.environ.get("TUTTI_NCCL_LIBRARY"):
        return os.environ["TUTTI_NCCL_LIBRARY"]
    for python in pythons():
        _, sites = output_of([python, "-c", SITES])
        for site in dict.fromkeys(sites.splitlines()):
            library = pathlib.Path(site) / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
            if site and library.is_file():
                return str(library)
    return None


def find_tool(name):
    """The path of a tool of CUDA, which is often not in PATH; None where there is none."""
    places = [shutil.which(name), *glob.glob(f"/usr/local/cuda*/bin/{name}"),
              *glob.glob(f"/usr/local/cuda*/compute-sanitizer/{name}"), *glob.glob(f"/opt/nvidia/*/*/{name}")]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


@contextlib.contextmanager
def mps(environment):
    """The environment of programs that share the GPU through a server of CUDA (MPS), so that their kernels run at the same
    time and not in turns; None where there is no such server, or it does not start. The server ends with the context.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tutti_mps_") as folder:
        served = {**environment, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        status, _ = output_of([control, "-d"], served)
        try:
            yield served if status == 0 else None
        finally:
            subprocess.run([control], env=served, input="quit\n", text=True, capture_output=True, check=False)


def find_torch(environment, has_gpu):
    """A Python that has pytest, and torch that the bundle's Python package fits, which finds a GPU where there is one; and
    the version of torch. (None, why not) otherwise. `environment` leads to the package."""
    ask = ("import pytest, torch, tutti.torch; tutti.torch._extension.load(); print(torch.__version__); "
           "print('GPU', torch.cuda.is_available())")
    reasons = []
    for python in pythons():
        status, text = output_of([python, "-c", ask], environment, timeout_s=120)
        lines = text.strip().splitlines() or ["nothing"]
        if status == 0 and (not has_gpu or lines[-1] == "GPU True"):
            return python, lines[-2]
        reasons.append(f"{python}: {lines[-1]}")
    return None, "no Python fits: " + "; ".join(reasons)


def environment_of_programs():
    """The environment in which the bundle's programs run; RuntimeError says why they do not.

    The programs find their libraries by themselves, but for the C++ library, which may be too new for this machine's C
    library: the machine's own is taken where it will do.
    """
    for program in BIN.iterdir():
        if program.is_file() and not os.access(program, os.X_OK):
            program.chmod(0o755)  # not all ways of copying a folder keep this
    environment = dict(os.environ)
    if nccl := find_nccl():
        environment["TUTTI_NCCL_LIBRARY"] = nccl
    texts = []
    for path in (None, BIN / "cxx"):
        if path:
            environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(path), os.environ.get("LD_LIBRARY_PATH")]))
        status, text = output_of([BIN / "gpu_ranks", "list"], environment)
        if status == 0:
            return environment
        texts.append(text.strip())
    raise RuntimeError("the programs do not run here: " + "; ".join(texts))


def describe(environment):
    """What there is, as {field: text}. The field `gpu` is there if and only if the programs can use a GPU."""
    machine = {"system": platform.platform(), "c_library": " ".join(platform.libc_ver()), "python": sys.version.split()[0],
               "cores": str(os.cpu_count())}
    status, text = output_of([BIN / "gpu_ranks", "info"], environment)
    for line in text.splitlines() if status == 0 else []:
        field, _, value = line.partition(": ")
        machine.setdefault(field, value)
    if status != 0:
        machine["cuda"] = f"asking for the GPU ended with {status}: {text.strip()}"
    if smi := shutil.which("nvidia-smi"):
        status, text = output_of([smi, "--query-gpu=driver_version", "--format=csv,noheader"])
        if status == 0 and text.strip():
            machine["driver"] = text.split()[0]
    elif found := re.search(r"\d+\.\d+(\.\d+)?", _read("/proc/driver/nvidia/version")):
        machine["driver"] = found.group()
    return machine


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
