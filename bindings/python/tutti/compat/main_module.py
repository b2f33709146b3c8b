"""Runs a script, a module or a command as ``__main__``, as python does that is given one on its command line."""

import importlib.machinery
import io
import os
import runpy
import sys
import types
import zipfile
from collections.abc import Sequence
from typing import Any

# The module that was __main__ before. Its functions are still running, so it must not be torn down.
_former: list[types.ModuleType] = []


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Runs the file ``path``: ``sys.argv``, ``sys.path``, ``__file__`` and tracebacks are those of ``python path``."""
    _prepare(path, arguments, os.path.dirname(os.path.realpath(path)))
    file = os.path.join(os.getcwd(), path)
    if os.path.isdir(path) or zipfile.is_zipfile(path):  # with a __main__.py inside
        sys.path[0] = os.path.abspath(path)
        _new_main()
        runpy._run_module_as_main("__main__", alter_argv=False)
        return
    try:
        with io.open_code(file) as opened:
            source = opened.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {file!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        sys.exit(2)
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    _execute(compile(source, file, "exec"), __file__=file, __loader__=loader, __cached__=None)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Runs the module ``name`` as ``python -m name`` does."""
    _prepare("-m", arguments, os.getcwd())
    _new_main()
    # Python itself calls this function for -m; run_module, its public sister, leaves another module as __main__.
    runpy._run_module_as_main(name)


def run_command(text: str, arguments: Sequence[str]) -> None:
    """Runs ``text`` as ``python -c text`` does."""
    _prepare("-c", arguments, "")
    _execute(compile(text, "<string>", "exec"), __loader__=importlib.machinery.BuiltinImporter)


def _prepare(name: str, arguments: Sequence[str], folder: str) -> None:
    sys.argv = [name, *arguments]
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # -P, or -I before Python 3.11: no folder is put there
        sys.path[0] = folder
    sys.excepthook = _show_without_own_frames
    _former.append(sys.modules["__main__"])


def _execute(code: types.CodeType, **variables: Any) -> None:
    main = _new_main()
    main.__dict__.update(variables)
    exec(code, main.__dict__)


def _new_main() -> types.ModuleType:
    """Puts an empty module in the place of ``__main__``, and returns the module."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # what multiprocessing takes for the main module of spawned children
        sys.modules["__mp_main__"] = main
    return main


def _show_without_own_frames(kind: type[BaseException], error: BaseException,
                             trace: types.TracebackType | None) -> None:
    """Shows an error as python shows it where nothing has run the script."""
    rest = trace
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == __file__:
            rest = trace.tb_next
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(rest), rest)
