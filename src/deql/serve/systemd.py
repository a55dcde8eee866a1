"""Telling systemd how the server fares, where it started the server (``Type=notify``)."""

from __future__ import annotations

import contextlib
import os
import socket

__all__ = ["notify"]


def notify(*lines: str) -> None:
    """Send lines such as ``READY=1``; nothing happens without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.sendall("\n".join(lines).encode())
