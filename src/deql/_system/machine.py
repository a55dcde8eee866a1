"""What this process may use of the machine: memory and processors, as control groups and limits leave them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from deql._system.limits import addresses_left
from deql.errors import DeqlError, TooLargeError

__all__ = ["check_fits", "free_memory", "processor_quota", "resident_file_system", "scratch_folder"]

_NO_LIMIT = 2**60
"""Version 1 of control groups writes a number above this where there is no limit."""


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take without swapping or being killed.

    The least of what the system has available, what each control group above the process leaves (the file
    cache that it can give back counts as free) and what is left of the limits on addresses and data.

    Parameters
    ----------
    root : Path, default /
        Where ``proc`` and ``sys`` are.

    Examples
    --------
    >>> free_memory() > 2**20
    True
    """
    available = [_available(root)]
    available += [_left_in_group(folder) for folder in _groups(root, "memory")]
    left = addresses_left(root)
    available += [] if left is None else [left]
    return max(0, min(available))


def processor_quota(root: Path = Path("/")) -> int | None:
    """Processors that the control groups above this process let it use at once, rounded up; None without a limit.

    Examples
    --------
    >>> quota = processor_quota()
    >>> quota is None or quota >= 1
    True
    """
    shares = []
    for folder in _groups(root, "cpu"):
        quota, period = [*_text(folder / "cpu.max").split(), "max", "100000"][:2]
        if quota == "max":  # version 1, if any
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us") or "100000"
        if quota.isdecimal() and int(period) > 0:  # version 1 writes −1 for none
            shares.append(-(-int(quota) // int(period)))
    return max(1, min(shares)) if shares else None


def resident_file_system(folder: Path, root: Path = Path("/")) -> bool:
    """Whether files in a folder lie in memory (tmpfs), so that they save none.

    Examples
    --------
    >>> resident_file_system(Path("/proc"))
    False
    """
    place = PurePosixPath(folder.resolve())
    inside = [mount for mount in _mounts(root) if place.is_relative_to(mount.point)]
    # Of mounts on one point the last hides the others.
    deepest = max(enumerate(inside), key=lambda one: (len(PurePosixPath(one[1].point).parts), one[0]), default=None)
    return deepest is not None and deepest[1].kind in ("tmpfs", "ramfs")


class _Mount(NamedTuple):
    """A line of mountinfo: what of the file system is mounted, and where."""

    root: str
    point: str
    kind: str
    options: list[str]


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        places, about = before.split(), after.split()
        if len(places) > 4 and len(about) > 2:
            yield _Mount(places[3], places[4].replace(r"\040", " "), about[0], about[2].split(","))


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that hold this process, for both versions, the innermost first."""
    mounts = list(_mounts(root))
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        unified = number == "0" and not controllers
        if not unified and controller not in controllers.split(","):
            continue
        for mount in mounts:
            if mount.kind != ("cgroup2" if unified else "cgroup") or not (unified or controller in mount.options):
                continue
            # In a container the mount shows a part of the tree: the group's path below that part, if it is there.
            inside = PurePosixPath(group)
            below = inside.relative_to(mount.root) if inside.is_relative_to(mount.root) else PurePosixPath()
            point = root / mount.point.lstrip("/")
            for depth in range(len(below.parts), -1, -1):
                yield point.joinpath(*below.parts[:depth])
            break


def _left_in_group(folder: Path) -> int:
    stat = dict(line.split()[:2] for line in _text(folder / "memory.stat").splitlines() if " " in line)
    limits = [_number(_text(folder / name)) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    limits.append(_number(stat.get("hierarchical_memory_limit", "")))
    used = _number(_text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes"), 0)
    cache = _number(stat.get("total_inactive_file", stat.get("inactive_file", "")), 0)
    return min(limits) - used + cache


def _available(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    with suppress(AttributeError, ValueError, OSError):  # not Linux: half of all there is
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return _NO_LIMIT


def _number(text: str, otherwise: int = _NO_LIMIT) -> int:
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else otherwise


def _text(path: Path) -> str:
    """What a file says; nothing if it is not there or may not be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def check_fits(
    what: str, needed: float, free: float, advice: str, *, where: str = "", error: type[DeqlError] = TooLargeError
) -> None:
    """Raise an error that says what would help if more memory is needed than is free.

    Examples
    --------
    >>> check_fits("rank 9", 2**31, 2**30, "choose a lower rank")
    Traceback (most recent call last):
    deql.errors.TooLargeError: rank 9 needs about 2.0 GiB, and 1.0 GiB are free: choose a lower rank
    """
    if needed > free:
        raise error(
            f"{what} needs about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free{where}: {advice}"
        )


def scratch_folder() -> Path:
    """Where files without a name go: ``TMPDIR`` if set, else /var/tmp, which is on a disk where /tmp may be memory.

    Examples
    --------
    >>> scratch_folder().is_dir()
    True
    """
    usual = Path("/var/tmp")
    return Path(tempfile.gettempdir()) if "TMPDIR" in os.environ or not usual.is_dir() else usual
