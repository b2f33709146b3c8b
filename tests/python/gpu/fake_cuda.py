"""A torch.cuda of the eight fake GPUs that the extension module of these tests brings.

The functions that torch has for any device (`torch.accelerator`, `torch.Stream`) see the fake GPUs by themselves. Those of
`torch.cuda`, which call the driver, are replaced here.
"""

import contextlib
import ctypes
import importlib.util
import pathlib

# Before torch, which asks once in its life who has GPUs.
_folder = pathlib.Path(importlib.util.find_spec("tutti").origin).parent
_extension = ctypes.CDLL(next(map(str, _folder.glob("_C.*.so"))))

import torch  # noqa: E402


def _index(device):
    if device is None:
        return torch.accelerator.current_device_index()
    return device if isinstance(device, int) else torch.device(device).index or 0


def _set_device(device):
    torch.accelerator.set_device_index(_index(device))


@contextlib.contextmanager
def _stream(stream):
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


_FUNCTIONS = {
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda *_: True,
    "is_current_stream_capturing": lambda: False,
    "device_count": lambda: 8,
    "current_device": lambda: _index(None),
    "set_device": _set_device,
    "synchronize": lambda device=None: torch.accelerator.synchronize(_index(device)),
    "empty_cache": lambda: None,
    "get_device_capability": lambda device=None: (7, 0),
    "get_device_name": lambda device=None: "fake",
    "Stream": lambda device=None, **_: torch.Stream(torch.device("cuda", _index(device))),
    "current_stream": lambda device=None: torch.accelerator.current_stream(_index(device)),
    "stream": _stream,
}


def install():
    """Whether the extension module has the fake GPUs, on which torch then works."""
    if not hasattr(_extension, "tutti_use_fake_devices"):
        return False
    _extension.tutti_use_fake_devices()
    for name, function in _FUNCTIONS.items():
        setattr(torch.cuda, name, function)
    return True
