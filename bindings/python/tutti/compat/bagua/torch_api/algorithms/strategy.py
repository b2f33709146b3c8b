"""What all of Bagua's algorithms are here: a name of a strategy."""


class Algorithm:
    """One of Bagua's algorithms with its options, as ``strategy``, a strategy name of Tutti."""

    strategy: str

    def __init__(self, name: str, **options: bool | int | str) -> None:
        self.strategy = f"{name}:{','.join(f'{option}={_text(value)}' for option, value in options.items())}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(strategy={self.strategy!r})"


def _text(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
