#!/usr/bin/env python3
"""What a host of links.py can do with its link, in a process of its own until the process is killed:

    traffic.py receive PORT                    takes what one connection sends
    traffic.py send ADDRESS PORT ON_S OFF_S    sends all that the link takes, and nothing, in turns
    traffic.py count DEVICE                    prints time (CLOCK_MONOTONIC) and bytes sent, ten times a second

`receive` and `send` cost as little as TCP can: large calls, and a receiver that wakes up for 64 KB.
"""

import contextlib
import pathlib
import socket
import sys
import time

BYTES = 256 << 10
WAKE_UP_BYTES = 64 << 10


def receive(port):
    with socket.create_server(("", int(port))) as server:
        connection, _ = server.accept()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_UP_BYTES)
        memory = bytearray(BYTES)
        while connection.recv_into(memory):
            pass


def connect(address, port):
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((address, int(port)))
        time.sleep(0.1)


def send(address, port, on_s, off_s):
    connection = connect(address, port)
    memory = bytes(BYTES)
    while True:
        end = time.monotonic() + float(on_s)
        while time.monotonic() < end:
            connection.sendall(memory)
        time.sleep(float(off_s))


def count(device):
    for_device = f"{device}:"
    while True:
        for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
            name, *columns = line.split()
            if name == for_device:
                print(time.monotonic(), columns[8], flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    {"receive": receive, "send": send, "count": count}[sys.argv[1]](*sys.argv[2:])
