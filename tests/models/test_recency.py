"""A fit with a half-life is a fit on values that were faded by hand, and ``age`` moves it to another moment."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, ModelFileError, ParameterError
from deql.io import model_file
from deql.linalg.gram import SharedGram, gram, user_weights, weighted_diagonal
from deql.models.verification import verify
from deql.priors import ItemFeatures, LowPass

HALF_LIFE, DAY = 3.0, 86400.0
KINDS = [
    partial(deql.EASE, 4.0),
    partial(deql.LAE, 4.0),
    partial(deql.DLAE, 4.0, 0.3),
    partial(deql.EDLAE, 4.0, 0.3),
    partial(deql.RLAE, 4.0, 0.2),
    partial(deql.RDLAE, 4.0, 0.3, 0.2),
    partial(deql.DEQL, 4.0, 0.3, 1.5),
    partial(deql.DEQL, 4.0, 0.3, 0.5, user_power=0.7, popularity_power=0.2),
    partial(deql.DEQL, 4.0, 0.3, 0.5, user_power=0.4, prior=LowPass(3), prior_weight=0.5),
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.func.__name__}{len(kind.keywords)}")


@pytest.fixture
def timed(asymmetric_ratings):
    data = deql.Interactions.from_csr(asymmetric_ratings)
    return replace(data, times=np.random.default_rng(3).uniform(-10.0, 10.0, data.n_interactions))


def by_hand(data, until, half_life=HALF_LIFE):
    values = data.matrix.data * 0.5 ** ((until - data.times) / half_life)
    matrix = csr_array((values, data.matrix.indices, data.matrix.indptr), data.matrix.shape)
    return replace(data, matrix=matrix, times=None)


def close(model, other, tolerance=1e-9):
    np.testing.assert_allclose(model.weights(), other.weights(), rtol=0, atol=tolerance)
    np.testing.assert_allclose(model.gram_diagonal_, other.gram_diagonal_, rtol=tolerance, atol=1e-50)


@kinds
def test_it_is_a_fit_on_what_was_faded_by_hand(kind, timed):
    model = kind(half_life=HALF_LIFE, dtype="float64").fit(timed, keep_data=True)
    close(model, kind(dtype="float64").fit(by_hand(timed, timed.times.max())))
    assert model.until_ == timed.times.max()
    assert model.data_ is timed
    assert model.weighted_
    assert (model.item_counts_ == np.bincount(timed.matrix.indices)).all()
    assert not deql.EASE(half_life=2).fit(replace(timed, matrix=timed.matrix != 0)).weighted_


@kinds
@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("until", [25.0, 4.0])
def test_age_is_a_fit_at_that_moment(kind, timed, keep_data, until):
    model = kind(half_life=HALF_LIFE, dtype="float64").fit(timed, keep_data=keep_data)
    report = model.age(until)
    rounding = 1e-9 if keep_data or model.prior is None else 1e-6  # the factors of a prior are of float32
    close(model, kind(dtype="float64").fit(by_hand(timed, until)), rounding)
    assert model.until_ == until
    assert report.method == "refit"
    assert model.updated_ == report.state
    assert (model.data_ is timed) == keep_data
    assert report.residual < 1e-9


def test_age_without_data_takes_cold_items_along(timed):
    features = {item: {"kind": "odd" if item % 2 else "even"} for item in range(9)}
    kind = partial(deql.DEQL, 4.0, 0.3, 1.5, prior=ItemFeatures(features), half_life=HALF_LIFE, dtype="float64")
    model, kept = (kind().fit(timed, keep_data=keep) for keep in (False, True))
    model.age(25.0), kept.age(25.0)
    assert len(model.items_) == 9
    close(model, kept, 1e-6)


def test_age_takes_dates_and_copies_along(timed, tmp_path):
    timed = replace(timed, times=timed.times * DAY)
    model = deql.EASE(4.0, half_life="3d").fit(timed, keep_data=True).quantize_rows()
    model.save(tmp_path / "one.deql")
    loaded = deql.load(tmp_path / "one.deql")
    for one in (model, loaded):
        one.age("1970-01-26")
        assert one.until_ == 25 * DAY
        close(one, deql.EASE(4.0).fit(by_hand(timed, 25 * DAY, 3 * DAY)), 1e-5)
    assert model.quantized_rows_ is not None
    assert model.age(25 * DAY).method == "none"


def test_an_update_keeps_the_moment(timed):
    model = deql.EDLAE(4.0, 0.3, user_power=0.5, half_life=HALF_LIFE, dtype="float64").fit(timed, keep_data=True)
    until = model.until_
    later = replace(deql.Interactions.from_pairs([3, 99], [5, 2]), times=np.array([14.0, 15.0]))
    for method in ("low rank", "refit"):
        model.update(later, removed=deql.Interactions.from_pairs([99, 3], [2, 5]) if method == "refit" else None,
                     method=method)  # fmt: skip
        assert model.until_ == until
        # A refit goes by the same moment: what came later counts more than in full.
        assert model.data_.times.max() > until
        close(model, deql.EDLAE(4.0, 0.3, user_power=0.5, dtype="float64").fit(by_hand(model.data_, until)))
    model.age(15.0)
    close(model, deql.EDLAE(4.0, 0.3, user_power=0.5, half_life=HALF_LIFE, dtype="float64").fit(model.data_))


def test_what_is_very_old_is_as_good_as_gone(timed):
    old = timed.times < 0
    times = np.where(old, -1e6, timed.times)
    data = replace(timed, times=times)
    model = deql.DEQL(4.0, 0.3, prior=LowPass(3, power_in=0.4), half_life=1, dtype="float64").fit(data)
    assert np.isfinite(model.weights()).all()
    without = deql.DEQL(4.0, 0.3, dtype="float64").fit(by_hand(data, times.max(), 1))
    close(deql.DEQL(4.0, 0.3, half_life=1, dtype="float64").fit(data), without)


def test_it_is_saved_and_refused_by_versions_that_do_not_know_it(timed, tmp_path):
    path = tmp_path / "one.deql"
    model = deql.EASE(4.0, half_life="3s", prior=LowPass(2)).fit(timed)
    model.save(path)
    loaded = deql.load(path)
    assert (loaded.half_life, loaded.until_) == ("3s", model.until_)
    assert np.array_equal(loaded.weights(), model.weights())
    record = model_file.read(path)
    assert record.name == "EASE with a half-life with a prior"
    deql.EASE(4.0).fit(timed).save(path)
    record = model_file.read(path)
    assert record.name == "EASE"
    assert "half_life" not in record.parameters
    assert "until" not in record.facts


@pytest.mark.parametrize("until", [None, "soon", True])
def test_a_damaged_moment_is_told(until, timed, tmp_path):
    deql.EASE(4.0, half_life=3).fit(timed).save(tmp_path / "one.deql")
    record = model_file.read(tmp_path / "one.deql")
    arrays = {name: np.array(array) for name, array in record.arrays.items() if not name.startswith("items")}
    model_file.write(tmp_path / "bad.deql", replace(record, facts=record.facts | {"until": until}, arrays=arrays))
    with pytest.raises(ModelFileError, match="damaged: its until is"):
        deql.load(tmp_path / "bad.deql")


def test_what_shares_a_fit(timed):
    model = deql.EASE(4.0, half_life="60s").fit(timed)
    other = model.with_rule(b=2.0)
    assert other.until_ == model.until_
    assert other.half_life == "60s"
    with pytest.raises(ParameterError, match="user_power and half_life need another fit"):
        model.with_rule(half_life=3.0)
    assert deql.EASE(4.0, half_life="1min")._fit_key == model._fit_key != deql.EASE(4.0)._fit_key
    beside = deql.LAE(4.0, half_life=60.0, prior=LowPass(2)).fit_beside(timed, model)
    assert beside.precision_ is model.precision_
    assert beside.until_ == model.until_
    assert np.array_equal(beside.weights(), deql.LAE(4.0, half_life=60.0, prior=LowPass(2)).fit(timed).weights())


def test_a_shared_gram_matrix_is_of_one_half_life(timed):
    rows = by_hand(timed, timed.times.max()).matrix
    diagonal = weighted_diagonal(rows, user_weights(rows, 0.0))
    shared = SharedGram(0.0, gram(rows), diagonal, HALF_LIFE)
    fitted = deql.EASE(4.0, half_life=HALF_LIFE).fit_gram(timed, shared)
    close(fitted, deql.EASE(4.0, half_life=HALF_LIFE).fit(timed), 1e-6)
    with pytest.raises(ParameterError, match=r"7 items and half_life 3\.0, not 0, float32, 7 and None"):
        deql.EASE(4.0).fit_gram(timed, shared)


def test_bad_input_is_told_and_changes_nothing(timed):
    with pytest.raises(ParameterError, match="half_life must be a number above 0"):
        deql.EASE(half_life="6mo").fit(timed)
    with pytest.raises(DataError, match="half_life needs to know when things happened: say time=…"):
        deql.EASE(half_life=3).fit(replace(timed, times=None))
    plain = deql.EASE(4.0).fit(timed)
    with pytest.raises(ParameterError, match="interactions do not fade in this model: fit it with half_life='30d'"):
        plain.age(3.0)
    model = deql.EASE(4.0, half_life=3).fit(timed)
    before = model.weights()
    with pytest.raises(ParameterError, match="until must be a time as the data have it, or a date like 2015-03-04"):
        model.age("tomorrow")
    with pytest.raises(ParameterError, match="until=-1000000000 is too long before"):
        model.age(-1e9)
    assert np.array_equal(model.weights(), before)
    assert model.updated_ is None


def test_a_frame_is_read_with_its_times(timed):
    import polars as pl

    frame = pl.DataFrame({"user": ["a", "a", "b", "b"], "item": list("xyyz"), "time": [1, 5, 3, 9]})
    model = deql.EASE(1.0, half_life=4).fit(frame, keep_data=True)
    assert model.until_ == 9.0
    model.update(pl.DataFrame({"user": ["b"], "item": ["x"], "time": [11]}))
    assert model.data_.times.max() == 11.0
    assert model.until_ == 9.0


def test_age_without_data_stays_on_the_disk(timed):
    engine = deql.engines.Disk(memory="64MiB")
    model = deql.EASE(4.0, half_life=HALF_LIFE, dtype="float64", engine=engine).fit(timed)
    model.age(25.0)
    assert model.engine_ == "disk"
    assert isinstance(model.precision_.data, np.memmap)
    close(model, deql.EASE(4.0, dtype="float64").fit(by_hand(timed, 25.0)))


def test_users_who_have_faded_away_leave_nothing_to_find(timed):
    data = replace(timed, times=np.where(timed.matrix.nonzero()[0] == 3, -1e6, timed.times))
    model = deql.EASE(4.0, half_life=1, dtype="float64").fit(data, keep_data=True)
    certificate = model.forget(3)
    checks = verify(certificate, model, model.checksum(), data)
    assert all(check.passed for check in checks)
    assert checks[-1].found.startswith("cannot be told")
