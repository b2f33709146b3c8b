"""What tests of hvd share: a function on two ranks between hvd.init() and hvd.shutdown(), and the text of an error."""

import tutti.compat.horovod.torch as hvd
from ranks import run_ranks


def on_two_ranks(function, *arguments):
    """Runs a function of the rank between init() and shutdown()."""
    return run_ranks(2, initialized, function, *arguments)


def initialized(rank, function, *arguments):
    hvd.init()
    value = function(rank, *arguments)
    hvd.shutdown()
    return value


def raised_by(function, *arguments, **named):
    """The type and the text of the error that a call raises."""
    try:
        function(*arguments, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
