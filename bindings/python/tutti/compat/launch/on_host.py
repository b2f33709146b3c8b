"""``python -m tutti.compat.launch.on_host``: the end of ssh on a host, which runs one command as long as ssh lives.

The first line of stdin is the command and its environment, in JSON. The command is ended when stdin is, so that nothing
goes on here when the launcher, or the connection to it, has ended.
"""

import json
import os
import signal
import subprocess
import sys
import threading

_PATIENCE = 40  # seconds; torchrun gives its ranks 30


def main() -> int:
    """Runs the command; returns its exit status."""
    job = json.loads(sys.stdin.buffer.readline())
    process = subprocess.Popen(job["command"], env=os.environ | job["environment"], stdin=subprocess.DEVNULL)
    for name in ("SIGHUP", "SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), lambda *_: _end(process))
    threading.Thread(target=_end_with_stdin, args=(process,), daemon=True).start()
    status = process.wait()
    return status if status >= 0 else 128 - status


def _end_with_stdin(process: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1024):  # nothing is expected, and nothing is buffered: the launcher waits
        pass
    _end(process)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()


if __name__ == "__main__":
    sys.exit(main())
