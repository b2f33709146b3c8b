"""Names of strategies with their options, as text."""


def with_options(name: str, *options: str) -> str:
    """The strategy name ``name`` with further options, each as ``option=value``."""
    before, _, given = name.partition(":")
    every = ",".join([part for part in given.split(",") if part] + [part for part in options if part])
    return f"{before}:{every}" if every else before
