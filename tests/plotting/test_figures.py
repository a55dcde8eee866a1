"""Plots as methods: figures that a notebook shows once, in the colours of the page and of the paper."""

import builtins
import re
from importlib.resources import files

import numpy as np
import pytest

import deql
from deql import DeqlError, Interactions, ParameterError
from deql.evaluation.evaluation_result import Evaluation
from deql.plotting.drawing import DARK, LIGHT, Labels
from deql.plotting.plots import effect

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")

EATEN = Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])


@pytest.fixture(scope="module")
def model():
    return deql.EASE(l2=1.0).fit(EATEN)


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text()]


def test_a_figure_is_shown_once(model):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = model.explain(["egg", "tea"], "jam").plot()
    png, size = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size == {"width": 650, "height": 154}
    assert pyplot.get_fignums() == []


def test_bars_are_the_parts_of_the_score(model):
    why = model.explain(["egg", "tea"], "jam")
    (axes,) = why.plot().axes
    assert [bar.get_width() for bar in axes.patches] == [part.value for part in why]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tea", "egg"]
    assert axes.get_title("left") == f"Why jam: score {why.score:.4f}"


def test_neighbours_around_the_item(model):
    near = model.neighbours("jam", k=2)
    (axes,) = model.plot_neighbours("jam", k=2).axes
    assert {"jam", "tea", "egg"} <= set(texts(axes.figure))
    arrows = [patch for patch in axes.patches if isinstance(patch, matplotlib.patches.FancyArrowPatch)]
    assert len(arrows) == len(near.edges())
    widths = sorted(arrow.get_linewidth() for arrow in arrows)
    largest = max(abs(edge.weight) for edge in near.edges())
    expected = sorted(0.4 + 5 * abs(edge.weight) / largest for edge in near.edges())
    assert widths == pytest.approx(expected)


def test_evaluations_over_users_and_histories():
    values = np.array([0.0, 0.5, 1.0, 1.0])
    found = Evaluation({"recall@5": 0.625, "coverage@5": 0.5}, {"recall@5": values}, np.array(list("abcd")))
    (axes,) = found.plot().axes
    (steps,) = axes.patches
    assert steps.get_data().values.max() == 0.5
    assert "mean 0.6250" in texts(axes.figure)
    assert len(found.plot(deql.HeldOut(EATEN, EATEN)).axes) == 2
    with pytest.raises(ParameterError, match="coverage@5 are of all users together"):
        Evaluation({"coverage@5": 0.5}, {}, np.array([1])).plot()


def test_comparisons_have_two_panels_for_each_metric():
    models = {"one": deql.EASE(1.0), "other": deql.Popularity()}
    found = deql.compare(
        models, deql.Split(EATEN, None, deql.HeldOut(EATEN, EATEN), {}), metrics=["recall@1", "ndcg@1"]
    )
    assert len(found.plot().axes) == 4


def test_colours_are_those_of_pages_and_go_with_the_paper(model):
    css = files("deql.report").joinpath("templates/palette.css").read_text("utf-8")
    light, dark = css.split("@media")
    for palette, part in ((LIGHT, light), (DARK, dark)):
        assert tuple(re.findall(r"--c\d: (#\w+)", part)) == palette.colours
        assert f"--ink: {palette.ink};" in part
        assert f"--grid: {palette.grid};" in part
    with matplotlib.rc_context({"figure.facecolor": "black"}):
        figure = model.explain(["egg"], "jam").plot()
    assert matplotlib.colors.to_hex(figure.axes[0].patches[0].get_facecolor()) == DARK.colours[0]
    figure = model.explain(["egg"], "jam").plot()
    assert matplotlib.colors.to_hex(figure.axes[0].patches[0].get_facecolor()) == LIGHT.colours[0]


def test_names_are_not_mathematics_and_need_no_font():
    data = Interactions.from_pairs(["u", "u", "v"], ["$x_1$ 漢", "plain", "plain"])
    figure = deql.EASE(1.0).fit(data).explain(["$x_1$ 漢"], "plain").plot()
    assert figure._repr_png_()[0]
    assert "$x_1$ 漢" in texts(figure)


def test_without_matplotlib(monkeypatch, model):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    why = model.explain(["egg"], "jam")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DeqlError, match=r'plots need matplotlib: pip install "deql\[report\]"'):
        why.plot()


@pytest.mark.parametrize("values", [[0.774, 0.773, 0.772, 0.766, 0.748], [0.748, 0.766, 0.772, 0.773, 0.774]])
def test_the_label_of_a_reference_stands_where_the_curve_is_not(values):
    """Of a curve that falls below the line or rises above it, at the end where it is farther away."""
    axes = matplotlib.figure.Figure().add_subplot()
    numbers = dict(zip([1.0, 3.0, 10.0, 30.0, 100.0], values, strict=True))
    labels = Labels("effect", "effect of l2", "l2", "ndcg@20")
    effect.panel(labels, numbers, None, (0.748, 0.774), {"EASE": 0.7656}, True, True).draw(axes)
    (text,) = (one for one in axes.texts if one.get_text().startswith("EASE"))
    assert (text.get_ha(), text.get_va()) == ("right" if values[0] > values[-1] else "left", "bottom")
    assert text.xyann[1] > 0
