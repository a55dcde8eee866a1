"""Progress in a notebook, without one: what is sent to be shown, and when."""

import sys
from types import SimpleNamespace

import pytest

from deql._system import notebook_progress
from deql._system.progress import stages


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, data, raw):
        assert raw
        self.shown[-1] = data["text/html"]


@pytest.fixture
def kernel(monkeypatch):
    """A kernel's shell; what stands below its cells."""
    shell, shown = SimpleNamespace(kernel=object(), execution_count=1), []

    def display(data, raw, display_id):
        assert raw
        assert display_id
        shown.append(data["text/html"])
        return Handle(shown)

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr(notebook_progress, "_last", None)
    monkeypatch.setattr(notebook_progress, "_WORTH_TELLING", 0.0)
    return SimpleNamespace(shell=shell, shown=shown)


def test_bars_are_written_over(kernel, monkeypatch):
    monkeypatch.setattr(notebook_progress, "_EVERY", 0.0)
    with stages(True) as stage:
        report = stage("Inverse <b>")
        assert "<progress></progress> 0.0 s" in kernel.shown[-1]
        report(1, 4)
        assert 'Inverse &lt;b&gt; <progress value="1" max="4"></progress> 25 %' in kernel.shown[-1]
    assert len(kernel.shown) == 1
    assert "Inverse &lt;b&gt; 0.0 s" in kernel.shown[-1]
    assert "<progress" not in kernel.shown[-1]


def test_a_cell_has_one_display_however_much_begins_in_it(kernel):
    for _ in range(3):
        with stages(True) as outer:
            outer("Search")(1, 1)
            with stages(True) as stage:
                stage("Inverse")(1, 1)
            assert "Search <progress" in kernel.shown[-1]
    assert len(kernel.shown) == 1
    assert kernel.shown[0].count("Inverse") == kernel.shown[0].count("Search") == 1
    kernel.shell.execution_count = 2
    with stages(True) as stage:
        stage("Inverse")
    assert len(kernel.shown) == 2


def test_it_is_not_drawn_at_every_step(kernel):
    drawn = []
    with stages(True) as stage:
        report = stage("Inverse")
        for step in range(10_000):
            report(step, 10_000)
            drawn.append(kernel.shown[-1])
    assert len(set(drawn)) <= 5


def test_what_took_no_time_leaves_nothing(kernel, monkeypatch):
    monkeypatch.setattr(notebook_progress, "_WORTH_TELLING", 0.5)
    with stages(True) as stage:
        stage("Inverse")(1, 1)
    assert kernel.shown == [""]


def test_an_error_leaves_no_bar(kernel):
    with pytest.raises(ZeroDivisionError), stages(True) as stage:
        stage("Inverse")(1, 1 // 0)
    assert "<progress" not in kernel.shown[-1]


def test_ipython_in_a_terminal_is_none(kernel):
    del kernel.shell.kernel
    assert not notebook_progress.in_notebook()
