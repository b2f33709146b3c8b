"""What the packages ``bagua`` and ``horovod`` and their commands call: ``tutti.compat``, or an error without it.

Tutti is no dependency of this distribution, because pip would install the ``tutti`` of PyPI, which is another project.
"""


def _require_tutti() -> None:
    try:
        import tutti.compat
    except ModuleNotFoundError as error:
        if error.name not in ("tutti", "tutti.compat"):
            raise
        raise ModuleNotFoundError(
            f"tutti-old-names needs Tutti, and there is no module {error.name}: run `pip install .` in the folder of "
            "Tutti's sources (`tutti` on PyPI is another project)", name=error.name) from None


def take_over(name: str) -> None:
    """Makes the module ``name``, which is being imported, that of ``tutti.compat``."""
    _require_tutti()
    from tutti.compat import old_names

    old_names.take_over(name)


def baguarun() -> int:
    """The command ``baguarun``."""
    _require_tutti()
    from tutti.compat.launch.baguarun import main

    return main()


def horovodrun() -> int:
    """The command ``horovodrun``."""
    _require_tutti()
    from tutti.compat.launch.horovodrun import main

    return main()
