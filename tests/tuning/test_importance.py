"""What mattered, worked out by hand."""

import pytest

from deql import ParameterError
from deql.tuning.importance import effects
from deql.tuning.space import PARAMETERS, WITHOUT_PRIOR
from tests.tuning.made import made, row

ROWS = [
    row(l2=10.0, dropout=0.2, value=0.40), row(l2=10.0, dropout=0.8, value=0.38), row(l2=30.0, dropout=0.2, value=0.31),
    row(l2=30.0, dropout=0.8, b=0.5, value=0.30), row(l2=3.0, dropout=0.2, b=None, xi=0.1, value=0.10),
]  # fmt: skip
BASELINES = {
    "popularity": dict.fromkeys(PARAMETERS)
    | {"ndcg@20": 0.05, "recall@20": 0.1},
    "EASE": WITHOUT_PRIOR | {"half_life": None}
    | {"l2": 10.0, "dropout": 0.0, "user_power": 0.0, "b": 0.0, "xi": None, "popularity_power": 0.0,
             "ndcg@20": 0.35, "recall@20": 0.3},
}  # fmt: skip


def test_the_best_at_each_value_and_how_far_it_moves():
    found = {effect.parameter: effect for effect in effects(made(ROWS))}
    assert list(found) == ["l2", "b", "dropout"]
    assert dict(zip(found["l2"].values, found["l2"].best, strict=True)) == {3.0: 0.1, 10.0: 0.4, 30.0: 0.31}
    assert found["l2"].importance == pytest.approx(0.30)
    assert found["b"].best == (0.30, 0.40)
    assert found["dropout"].importance == pytest.approx(0.02)


def test_lower_is_better():
    rows = [row(l2=3.0, value=0.1), row(l2=3.0, b=0.5, value=0.3), row(l2=9.0, value=0.2)]
    by_name = {one.parameter: one for one in effects(made(rows, metric="mse"))}
    assert by_name["l2"].best == (0.1, 0.2)


def test_many_values_are_taken_in_groups():
    # One value in 18 is far below its neighbours: that is the others' doing, and no importance of l2.
    rows = [row(l2=1.0 + step, value=0.1 if step == 7 else 0.4 - step / 1000) for step in range(18)]
    (effect,) = effects(made(rows))
    assert effect.is_between_values
    assert effect.importance == pytest.approx(0.015)


def test_the_plot_has_a_panel_for_each_and_lines_for_what_is_known():
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    figure = made(ROWS, baselines=BASELINES).plot()
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["l2 moves ndcg@20 by 0.3000", "b moves ndcg@20 by 0.1000", "dropout moves ndcg@20 by 0.0200"]
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["0.4000", "EASE 0.3500", "popularity 0.0500"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    near = made(ROWS[:3], baselines=BASELINES).plot()
    assert [text.get_text() for text in near.axes[0].texts][-1] == "popularity 0.0500 ↓"
    with pytest.raises(ParameterError, match="nothing to plot"):
        made([row()]).plot()
