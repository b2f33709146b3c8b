"""The extension module ``tutti._C``, which fits only the torch and the Python that it was built for."""

import importlib.util
import pathlib
import platform

import tutti
from tutti._version import torch_version as built_for


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


_RIGHT_TORCH = f"pip install 'torch=={_minor(built_for)}.*'"

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(f"tutti.torch needs PyTorch, and torch is not installed: {_RIGHT_TORCH} (tutti was built for "
                              f"torch {built_for})", name="torch") from None


def _wrong_torch(found: str) -> ImportError:
    return ImportError(
        f"tutti was built for torch {built_for}, and torch {found} is installed, whose C++ classes differ: "
        f"{_RIGHT_TORCH}, or install tutti again from its sources for the torch that is installed, without the wheel "
        "that pip may have kept: pip install --no-cache-dir --force-reinstall .",
        name="tutti._C")


def _wrong_python() -> ImportError:
    found = ", ".join(file.name for file in pathlib.Path(tutti.__file__).parent.glob("_C.*.so")) or "none"
    return ImportError(
        f"tutti has no extension module for this Python, {platform.python_version()} (there is: {found}): install tutti "
        "again from its sources, by this Python's pip", name="tutti._C")


def check_torch(found: str = torch.__version__) -> None:
    """ImportError when torch is of another minor version than the one that the extension module was built against."""
    if _minor(found) != _minor(built_for):
        raise _wrong_torch(found)


def load():
    """The module ``tutti._C``. ImportError when it does not fit the torch that is installed, or this Python."""
    check_torch()
    try:
        from tutti import _C
    except ImportError as error:
        # A build of the same version may lack a symbol all the same: another patch release, or one from source.
        if "undefined symbol" in str(error):
            raise _wrong_torch(torch.__version__) from error
        if importlib.util.find_spec("tutti._C") is None:
            raise _wrong_python() from error
        raise
    return _C
