import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.split import HeldOut

torch = pytest.importorskip("torch")

from deql.device.judge import _find_hits, judge  # noqa: E402
from deql.device.packed import DevicePacked  # noqa: E402
from deql.device.rank import Best  # noqa: E402
from deql.errors import DataError, ParameterError  # noqa: E402
from deql.precision import PackedSymmetric  # noqa: E402

CPU = torch.device("cpu")
METRICS = [
    "recall@5", "recall_capped@3", "ndcg@20", "precision@7", "hit_rate@1", "mrr@10", "map@10",
    "coverage@3", "gini@9", "novelty@4", "mse",
]  # fmt: skip


def plain(data):
    return data.matrix.indptr, data.matrix.indices, data.matrix.data


def judge_models(models, target, metrics=METRICS, **options):
    first = models[0]
    P = DevicePacked.from_host(first.precision_, CPU)
    gains, shifts = (np.stack([getattr(model, name) for model in models]) for name in ("gain_", "shift_"))
    return judge(
        P, gains, shifts, plain(target.seen), plain(target.held_out), metrics,
        item_counts=first.item_counts_, n_users=first.n_users_, **options,
    )  # fmt: skip


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one.means) == list(other.means)
        assert one.means == pytest.approx(other.means, rel=1e-12)
        assert one.skipped == other.skipped
        assert one.per_user.keys() == other.per_user.keys()
        for metric, values in other.per_user.items():
            np.testing.assert_allclose(one.per_user[metric], values, rtol=1e-10, err_msg=metric)
            if metric != "mse":
                assert one.per_user[metric].tobytes() == values.tobytes()


@pytest.fixture(scope="module")
def bundled():
    """A sample of the bundled data, with three models on one P."""
    data = deql.clean(deql.datasets.debian().take_users(slice(0, 4000)), min_users_per_item=30)
    split = deql.split_strong(data, seed=1)
    first = deql.EDLAE(l2=5.0, dropout=0.3).fit(split.train)
    return [first, first.with_rule(b=2.0), first.with_rule(b=0.5, popularity_power=0.3)], split.test


@pytest.mark.parametrize("scratch", [2**30, 2**20])
def test_the_numbers_are_those_of_evaluate(bundled, scratch):
    models, target = bundled
    assert_same(judge_models(models, target, scratch=scratch), deql.evaluate(models, target, METRICS))


def test_weights_and_users_who_lack_something(random_matrix):
    train, seen, held_out = (random_matrix(60, 80, seed=seed, weighted=True).toarray() for seed in range(3))
    seen[[2, 7]] = 0  # judged by popularity
    held_out[[4, 9]] = 0  # not judged
    seen[5] = 1  # nothing left to recommend
    model = deql.DEQL(l2=3.0, dropout=0.3, b=2.0, dtype="float64").fit(csr_array(train))
    target = HeldOut(*(deql.Interactions.from_csr(csr_array(part)) for part in (seen, held_out)))
    found = judge_models([model], target, [*METRICS, "ndcg@500"])
    assert_same(found, [deql.evaluate(model, target, [*METRICS, "ndcg@500"])])
    assert found[0].skipped == 2
    assert found[0].users.tolist() == [u for u in range(60) if u not in (4, 9)]


def test_hits_of_many_users_and_items_are_told_apart():
    # Numbers of entries pass 2³¹ here.
    users, n = 3000, 2**20
    item = (np.arange(users) * 7919) % n
    held_out = np.arange(users + 1), item, np.ones(users)
    listed = np.where(np.arange(users) % 3 == 0, item, (item + 1) % n)
    best = Best(*(torch.from_numpy(array).view(1, users, 1) for array in (np.ones(users), np.ones(users), listed)))
    columns, hits = _find_hits(0, users, best, seen=held_out, held_out=held_out, popular=np.array([5]), n=n)
    np.testing.assert_array_equal(columns[0, :, 0], listed)
    np.testing.assert_array_equal(hits[0, :, 0], np.arange(users) % 3 == 0)


class TestRefuses:
    SOME = np.array([0, 1, 2]), np.array([0, 2]), np.ones(2)
    NOTHING = np.array([0, 0, 0]), np.array([], int), np.ones(0)

    @pytest.mark.parametrize(
        ("seen", "held_out", "metrics", "error", "words"),
        [
            (SOME, SOME, ["auc"], ParameterError, "unknown metric 'auc'"),
            (SOME, SOME, [], ParameterError, "at least one metric"),
            (
                SOME,
                (np.array([0, 1]), np.array([0]), np.ones(1)),
                ["mse"],
                DataError,
                "users as histories, 2, and .* 1$",
            ),
            (SOME, (SOME[0], np.array([0, 3]), SOME[2]), ["mse"], DataError, "held out must have columns from 0 to 2"),
            (SOME, NOTHING, ["mse"], DataError, "nothing to evaluate"),
            (NOTHING, SOME, ["mse"], DataError, "nobody has any"),
        ],
    )
    def test_what_cannot_be_judged(self, seen, held_out, metrics, error, words):
        P = DevicePacked.from_host(PackedSymmetric.from_dense(np.eye(3), 3), CPU)
        with pytest.raises(error, match=words):
            judge(P, np.ones(3), np.ones(3), seen, held_out, metrics, item_counts=np.ones(3, int), n_users=2)


def test_evaluate_looks_on_the_device_where_p_is_there(bundled, monkeypatch):
    models, target = bundled
    expected = deql.evaluate(models, target, METRICS)
    from deql.device import rank

    scanned, scan = [], rank.scan
    monkeypatch.setattr(rank, "scan", lambda P, *rest, **named: (scanned.append(P), scan(P, *rest, **named))[1])
    there = DevicePacked.from_host(models[0].precision_, CPU)
    monkeypatch.setattr(models[1], "on_device_", there, raising=False)
    assert_same(deql.evaluate(models, target, METRICS), expected)
    assert scanned == [there]
