"""The server as a whole: a socket, a snapshot of each model file, and a supervisor of workers that answer from it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from deql.errors import ParameterError, reason
from deql.serve import monitoring, snapshot
from deql.serve.monitoring import FOLDER
from deql.serve.settings import Settings
from deql.serve.snapshot import Snapshot
from deql.serve.supervisor import Supervisor

__all__ = ["bind", "is_local", "run"]


def run(settings: Settings, ready: Callable[[str], None] | None = None) -> int:
    """Serve until told to end; the exit code for the program.

    Must be called in the main thread: SIGTERM and SIGINT end it in good order, SIGHUP reads the model file again.

    Parameters
    ----------
    settings : Settings
    ready : callable, optional
        Called with the server's address once every worker answers.

    Raises
    ------
    DeqlError
        If the address cannot be listened at, or the file holds no model.
    """
    if os.name != "posix":
        raise ParameterError("deql serve needs a Unix system, such as Linux or macOS")
    with bind(settings.host, settings.port) as listener:
        first = _take_all(settings.models)
        with _folder() as folder:
            monitoring.configure_logs()
            return Supervisor(settings, listener, first, folder, ready).run()


def _take_all(models: dict[str, str]) -> dict[str, Snapshot]:
    taken: dict[str, Snapshot] = {}
    try:
        for name, path in models.items():
            taken[name] = snapshot.take(Path(path))
    except BaseException:
        for copy in taken.values():
            copy.close()
        raise
    return taken


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; who connects waits until a worker accepts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may mean either; the older kind of address is what people then try.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ParameterError(f"there is no address {host}: {_why(error)}", parameter="host") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # A socket of another process that is bound but does not listen yet is found out only here.
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ParameterError(
            f"cannot listen at {host} port {port}: {_why(error)}; choose another with --port, or 0 for a free one",
            parameter="port",
        ) from None
    return listener


def is_local(host: str) -> bool:
    """Whether a host is this machine, seen from itself.

    Examples
    --------
    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0"), is_local("127.evil.com")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder for what workers and supervisor share; they, and prometheus_client, find it in the environment."""
    # The path of a socket may have some 100 characters.
    place = None if len(tempfile.gettempdir()) < 70 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="deql-serve-", dir=place, ignore_cleanup_errors=True) as folder:
        before = dict(os.environ)
        # Workers look for modules where this process does, but not in the folder that it happens to be started in.
        os.environ.update({FOLDER: folder, "PYTHONSAFEPATH": "1"})
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)
