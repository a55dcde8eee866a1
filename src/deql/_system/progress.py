"""Progress bars for long work, drawn only when asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deql._system.compiling import announce_compiling
from deql._system.notebook_progress import ProgressCallback, in_notebook, notebook_stages

__all__ = ["ProgressCallback", "Stage", "stages"]

Stage = Callable[[str], ProgressCallback | None]


@contextmanager
def stages(show: bool) -> Iterator[Stage]:
    """Open a display; each call of what it yields starts a bar and returns its ``report(done, total)``.

    Parameters
    ----------
    show : bool
        If false, every stage's report is None and nothing is drawn or imported.

    Examples
    --------
    >>> with stages(False) as stage:
    ...     print(stage("Inverse"))
    None
    """
    if not show:
        yield lambda _label: None
        return
    announce_compiling(lambda text: print(f"deql: {text}", file=sys.stderr))
    if in_notebook():
        with notebook_stages() as stage:
            yield stage
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<16}"), BarColumn(), TaskProgressColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def stage(label: str) -> ProgressCallback:
            task = bars.add_task(label, total=None)

            def report(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total)

            return report

        yield stage
