"""The extension module ``tutti._C``, which fits only the torch that it was built against."""

import torch

from tutti._version import torch_version as built_for


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _wrong_torch(found: str) -> ImportError:
    return ImportError(
        f"tutti was built for torch {built_for}, and torch {found} is installed, whose C++ classes differ: run "
        "`pip install .` again, in the folder of Tutti's sources", name="tutti._C")


def check_torch(found: str = torch.__version__) -> None:
    """ImportError when torch is of another minor version than the one that the extension module was built against."""
    if _minor(found) != _minor(built_for):
        raise _wrong_torch(found)


def load():
    """The module ``tutti._C``. ImportError when it does not fit the torch that is installed."""
    check_torch()
    try:
        from tutti import _C
    except ImportError as error:
        # A build of the same version may lack a symbol all the same: another patch release, or one from source.
        if "undefined symbol" in str(error):
            raise _wrong_torch(torch.__version__) from error
        raise
    return _C
