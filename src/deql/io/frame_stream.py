"""Tables that are longer than memory: frames written to one file as they come, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Full, Queue
from typing import Any

from deql._system.lazy import pl
from deql.io.atomic import write_whole

__all__ = ["STREAM_ENDINGS", "write_frames"]

STREAM_ENDINGS = (".parquet", ".csv", ".ndjson")

_PATIENCE = 0.1
"""Seconds after which who waits to hand over a frame looks whether anybody is still writing."""


def write_frames(path: Path, frames: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> None:
    """Write frames one after the other, in the format that the file's ending names.

    They are made here and written in a thread, so that Ctrl-C is heard between two of them.

    Parameters
    ----------
    path : Path
        Ends in one of ``STREAM_ENDINGS``.
    frames : iterable of polars.DataFrame
    schema : dict
        The type of each column, in their order.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "lists.parquet"
    ...     write_frames(path, (pl.DataFrame({"rank": [rank]}) for rank in range(3)), {"rank": pl.Int64})
    ...     pl.read_parquet(path)["rank"].to_list()
    [0, 1, 2]
    """
    write_whole(path, lambda place: _stream(place, path.suffix, frames, schema))


def _stream(place: Path, ending: str, frames: Iterable[pl.DataFrame], schema: Mapping[str, Any]) -> None:
    from polars.io.plugins import register_io_source

    handed: Queue[pl.DataFrame | None] = Queue(1)

    def source(*_asked: object) -> Iterator[pl.DataFrame]:
        while (frame := handed.get()) is not None:
            yield frame

    lazy = register_io_source(source, schema=schema)
    sinks: dict[str, Callable[[Path], object]] = {
        ".parquet": lazy.sink_parquet, ".csv": lazy.sink_csv, ".ndjson": lazy.sink_ndjson,
    }  # fmt: skip
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(sinks[ending], place)
        try:
            for frame in frames:
                if not _hand_over(handed, frame.cast({name: schema[name] for name in frame.columns}), written):
                    break
        finally:  # after an error, too: what was written so far is then removed with the file
            _hand_over(handed, None, written)
        written.result()


def _hand_over(handed: Queue[pl.DataFrame | None], frame: pl.DataFrame | None, written: Future[object]) -> bool:
    """Wait until there is room for the next frame; False if nobody writes any more."""
    while not written.done():
        try:
            handed.put(frame, timeout=_PATIENCE)
            return True
        except Full:
            continue
    return False
