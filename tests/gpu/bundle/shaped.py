#!/usr/bin/env python3
"""Runs a command in a network of its own, whose loopback interface has the speed of a link: shaped.py 10gbit COMMAND…

All bytes of the two ends of a connection pass the one loopback interface, so that interface has twice the speed of the
link, which two ranks that send to each other share. Needs root, or user namespaces; and tc, which the bundle has.
"""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
BURST_BYTES = 1 << 20  # more than a packet of the loopback interface, which may have 64 KB
QUEUE_MS = 50


def unshare():
    """Leaves the network of this machine; RuntimeError where that is not allowed."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) == 0:
        return
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        raise RuntimeError(f"a network of its own is refused: {os.strerror(ctypes.get_errno())}")
    # Without a name in the new user namespace the rights there are lost when tc begins.
    for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        pathlib.Path(f"/proc/self/{file}").write_text(text)


def bring_up_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def shape_loopback(link):
    amount, unit = re.fullmatch(r"(\d+)([a-z]+)", link).groups()
    bundled = pathlib.Path(__file__).resolve().parent / "bin" / "tc"
    tc = shutil.which("tc") or str(bundled)
    environment = dict(os.environ)
    if tc == str(bundled):
        environment["LD_LIBRARY_PATH"] = str(bundled.parent / "libraries")
    subprocess.run([tc, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{2 * int(amount)}{unit}", "burst",
                    str(BURST_BYTES), "latency", f"{QUEUE_MS}ms"], env=environment, check=True)


def main():
    link, *command = sys.argv[1:]
    try:
        unshare()
        bring_up_loopback()
        shape_loopback(link)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"shaped.py: {error}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
