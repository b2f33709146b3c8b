"""Tutti keeps the replicas of a model in step while it trains on several processes.

``import tutti`` needs no torch; ``import tutti.torch`` registers the backend ``tutti`` of ``torch.distributed``.
"""

from tutti._version import __version__

__all__ = ["__version__", "cmake_dir"]


def __getattr__(name: str):
    """Imports ``tutti.torch`` when it is first used, so that ``import tutti`` alone needs no torch."""
    if name != "torch":
        raise AttributeError(f"module 'tutti' has no attribute {name!r}")
    import importlib

    return importlib.import_module("tutti.torch")


def cmake_dir() -> str:
    """The folder for CMake's ``-Dtutti_DIR=``: C++ programs find this installation by ``find_package(tutti)``.

    RuntimeError when this package was not installed by pip, or in editable mode, and runs where it was built.
    """
    import os

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "cmake", "tutti")
    if not os.path.exists(os.path.join(folder, "tuttiConfig.cmake")):
        raise RuntimeError(
            f"tutti.cmake_dir: {folder} has no tuttiConfig.cmake, since this package was not installed by pip, or in "
            "editable mode (pip install -e); install it (pip install .), or install the C++ library by cmake --install "
            "and name its prefix in CMAKE_PREFIX_PATH")
    return folder
