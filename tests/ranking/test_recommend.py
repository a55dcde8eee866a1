import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from deql import DEQL, EASE, Interactions, Popularity
from deql.errors import ParameterError
from deql.linalg.packed import PackedSymmetric
from deql.ranking.rank import rank


def best(scores, k, blocked=False):
    """The k best columns of dense scores, the lower one first among equals, then −1 with NaN."""
    scores = np.where(blocked, -np.inf, scores)
    columns = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(scores, columns, axis=1)
    return np.where(np.isfinite(top), columns, -1), np.where(np.isfinite(top), top, np.nan)


def one_user(columns, n):
    return csr_array(np.isin(np.arange(n), columns)[None].astype(float))


def assert_ranked(found, expected, rtol=1e-9):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=rtol)


def assert_same_bits(found, expected):
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tobytes() == expected[1].tobytes()


@pytest.fixture(scope="module")
def fitted(random_matrix):
    """Makes a model with a diagonal, in float64 and with integer ids, and histories of other users."""
    made = {}

    def make(n):
        if n not in made:
            model = DEQL(l2=3.0, dropout=0.3, b=2.0, dtype="float64").fit(random_matrix(300, n))
            made[n] = model, random_matrix(40, n, seed=1, weighted=True)
        return made[n]

    return make


@pytest.fixture(scope="module")
def shop(toy):
    return EASE(l2=1.0, dtype="float64").fit(toy)


class TestScores:
    @pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 200])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_match_the_dense_product(self, fitted, n, weighted):
        model, histories = fitted(n)
        X = histories.toarray() if weighted else (histories.toarray() > 0).astype(float)
        scores = X @ model.weights()
        assert_ranked(model.recommend(csr_array(X), k=10), best(scores, 10, X > 0))
        assert_ranked(model.recommend(csr_array(X), k=10, exclude_seen=False), best(scores, 10))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("tile", [64, 128])
    @pytest.mark.parametrize("n", [200, 1000])
    def test_match_the_dense_product_of_a_matrix_in_tiles(self, random_matrix, n, tile, dtype):
        generator = np.random.default_rng(n)
        P = generator.standard_normal((n, n)).astype(dtype)
        P += P.T
        gain, shift = generator.standard_normal((2, n))
        histories = random_matrix(20, n, weighted=True)
        X = histories.toarray()
        allowed = generator.random(n) < 0.9
        packed = PackedSymmetric.from_dense(P, tile=tile)
        scores = X @ (P.astype(float) * gain + np.diag(shift))
        assert_ranked(rank(packed, gain, shift, histories, k=30, allowed=allowed), best(scores, 30, (X > 0) | ~allowed))
        assert_ranked(rank(packed, gain, shift, histories, k=30, exclude_seen=False), best(scores, 30))

    def test_of_similar_items_are_the_row_of_w(self, fitted):
        model, _ = fitted(65)
        ids, scores = model.similar_items(7, k=5)
        others = np.arange(65) == 7
        assert_ranked((ids[None], scores[None]), best(model.weights()[[7]], 5, others))


class TestTies:
    """The lower column comes first, wherever strips and tiles are cut."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(("n", "tile"), [(5, 5), (200, 200), (200, 64)])
    def test_all_equal(self, n, tile, dtype):
        packed = PackedSymmetric.from_dense(np.ones((n, n), dtype), tile=tile)
        items, scores = rank(packed, np.ones(n), np.zeros(n), one_user([1, n - 1], n), k=n)
        assert items[0].tolist() == [i for i in range(n - 1) if i != 1] + [-1, -1]
        assert set(scores[0, : n - 2].tolist()) == {2.0}

    def test_groups_of_equals(self):
        n = 300
        level = np.arange(n) % 3  # three groups of a hundred, the group of 2 best
        items, _ = rank(
            PackedSymmetric.from_dense(np.ones((n, n)), tile=64), level.astype(float), np.zeros(n),
            one_user([299], n), k=150, exclude_seen=False,
        )  # fmt: skip
        assert items[0].tolist() == [*range(2, n, 3), *range(1, 150, 3)]

    @pytest.mark.parametrize("rivals", [5, 36])
    def test_sums_of_the_same_numbers_in_another_order_are_equal(self, rivals):
        # In float32, which P is stored in, 1 + ε + ε is 1 and ε + ε + 1 is not; exactly they are equal.
        epsilon = 2.0**-24
        P = np.zeros((40, 40), np.float32)
        P[37:, 1 : rivals + 1] = [[epsilon], [epsilon], [1.0]]
        P[37:, 0] = [1.0, epsilon, epsilon]
        P += P.T
        items, scores = rank(
            PackedSymmetric.from_dense(P, tile=40), np.ones(40), np.zeros(40), one_user([37, 38, 39], 40), k=3
        )
        assert scores[0].tolist() == [1 + 2 * epsilon] * 3
        assert items[0].tolist() == [0, 1, 2]

    def test_in_popularity(self, toy):
        assert Popularity().fit(toy).recommend([[]], k=5).ids.tolist() == [["tea", "egg", "jam", "rye", "oat"]]


class TestFilters:
    @pytest.mark.parametrize(
        "candidates",
        [
            range(64),
            range(64, 128),
            range(128, 192),
            range(192, 200),
            [199],
            [70, 130],
            range(0, 200, 7),
            range(200),
            [],
        ],
        ids=["strip 1", "strip 2", "strip 3", "last strip", "last item", "two strips", "comb", "all", "none"],
    )
    @pytest.mark.parametrize("exclude_seen", [True, False])
    def test_candidates(self, fitted, candidates, exclude_seen):
        model, histories = fitted(200)
        blocked = ~np.isin(np.arange(200), candidates) | ((histories.toarray() > 0) & exclude_seen)
        found = model.recommend(histories, k=20, candidates=candidates, exclude_seen=exclude_seen)
        assert_ranked(found, best(histories @ model.weights(), 20, blocked))

    def test_exclude(self, fitted):
        model, histories = fitted(200)
        exclude = [0, 63, 64, 65, 150, 199]
        blocked = np.isin(np.arange(200), exclude) | (histories.toarray() > 0)
        assert_ranked(
            model.recommend(histories, k=200, exclude=exclude), best(histories @ model.weights(), 200, blocked)
        )


class TestLength:
    def test_may_be_a_numpy_integer(self, shop):
        assert shop.recommend([["tea"]], k=np.int32(2)).ids.shape == (1, 2)


@pytest.fixture(scope="module")
def model(random_matrix):
    data = Interactions.from_csr(random_matrix(200, 70), items=[f"item {i}" for i in range(70)])
    return EASE(l2=3.0).fit(data)


@pytest.fixture(scope="module")
def matrix(random_matrix):
    return random_matrix(9, 70, seed=5)


@pytest.fixture(scope="module")
def expected(model, matrix):
    return model.recommend(matrix, k=12)


class TestHistories:
    def test_as_interactions_with_fewer_and_other_items(self, model, matrix):
        ids = [*model.items_[:30].tolist(), "unknown 1", "unknown 2"]
        narrow = csr_array(np.hstack([matrix[:, :30].toarray(), np.ones((9, 2))]))
        wide = matrix.toarray() * (np.arange(70) < 30)
        with pytest.warns(UserWarning, match="'unknown 1', 'unknown 2'"):
            found = model.recommend(Interactions.from_csr(narrow, items=ids), k=12)
        assert_same_bits(found, model.recommend(csr_array(wide), k=12))

    def test_with_integer_ids(self, random_matrix):
        matrix = random_matrix(100, 8)
        data = Interactions.from_csr(matrix, items=[10, 20, 30, 40, 50, 60, 70, 80])
        model = EASE(l2=2.0).fit(data)
        by_column = EASE(l2=2.0).fit(matrix).recommend([[0, 7]], k=3)
        for history in ([10, 80], np.array([80, 10]), (np.int32(10), np.uint8(80))):
            found = model.recommend([history], k=3)
            assert found.ids.tolist() == ((by_column.ids + 1) * 10).tolist()
            assert found.scores.tobytes() == by_column.scores.tobytes()

    def test_items_that_no_history_has_are_not_named_in_it(self, shop):
        data = Interactions.from_pairs(["a", "b"], ["tea", "gin"]).take_users(np.array([0]))
        assert_same_bits(shop.recommend(data, k=2, strict=True), shop.recommend([["tea"]], k=2))

    def test_with_lists_inside_are_an_error(self, shop):
        with pytest.raises(ParameterError, match=r"single value, got \['jam'\]"):
            shop.recommend([["tea", ["jam"]]])


@pytest.fixture(scope="module", params=["float32", "float64"])
def case(request, random_matrix):
    model = DEQL(l2=3.0, b=2.0, dtype=request.param).fit(random_matrix(300, 200))
    histories = random_matrix(50, 200, seed=2, weighted=True)
    return model, histories, model.recommend(histories, k=15)


class TestSameBits:
    """What a user gets depends on neither the others in the batch nor the number of threads."""

    def test_in_any_batch(self, case):
        model, histories, whole = case
        for rows in ([7], [49, 0, 20], range(49, -1, -1), [3, 3]):
            part = model.recommend(histories[list(rows)], k=15)
            assert_same_bits(part, (whole.ids[list(rows)], whole.scores[list(rows)]))

    @pytest.mark.parametrize("threads", [1, 2, 7, 64])
    def test_with_any_number_of_threads(self, case, threads, monkeypatch):
        model, histories, whole = case
        monkeypatch.setenv("DEQL_THREADS", str(threads))
        monkeypatch.setattr("deql.ranking.rank._WORK_PER_THREAD", 1)
        assert_same_bits(model.recommend(histories, k=15), whole)

    def test_with_any_k(self, case):
        model, histories, whole = case
        assert_same_bits(model.recommend(histories, k=4), (whole.ids[:, :4], whole.scores[:, :4].copy()))

    def test_with_empty_rows_between(self, case):
        model, histories, whole = case
        found = model.recommend(vstack([csr_array((2, 200)), histories], format="csr"), k=15)
        assert found.from_popularity.tolist() == [True] * 2 + [False] * 50
        assert_same_bits((found.ids[2:], found.scores[2:]), whole)


@pytest.mark.parametrize(
    "twin",
    [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_recommendations_can_be_copied_and_sent(shop, twin):
    found = shop.recommend([["tea"], []], k=2)
    other = twin(found)
    assert_same_bits(other, found)
    assert other.from_popularity.tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [EASE, DEQL])
def test_a_shorter_list_is_the_beginning_of_a_longer_one(kind, dtype, random_matrix):
    """Among items that are twins of each other scores are equal but for rounding."""
    few = random_matrix(150, 15).toarray()
    twins = csr_array(np.repeat(few, 20, axis=1))
    model = kind(l2=20.0, dtype=dtype).fit(twins)
    whole = model.recommend(twins, k=300).ids
    for k in (1, 5, 30):
        np.testing.assert_array_equal(model.recommend(twins, k=k).ids, whole[:, :k])


def test_scores_that_are_equal_only_when_added_exactly_are_ties():
    """191 columns hold the same nine numbers in different order: the first three are the best."""
    generator = np.random.default_rng(0)
    P = np.eye(200)
    numbers = generator.standard_normal(9)
    for column in range(191):
        P[191:, column] = P[column, 191:] = generator.permutation(numbers)
    history = np.zeros((1, 200))
    history[0, 191:] = 1
    items, scores = rank(PackedSymmetric.from_dense(P, 64), np.ones(200), np.zeros(200), csr_array(history), k=3)
    assert items.tolist() == [[0, 1, 2]]
    assert len(set(scores[0])) == 1


def test_tiles_that_scoring_cannot_read_are_refused():
    with pytest.raises(ValueError, match="multiples of 64"):
        rank(PackedSymmetric.from_dense(np.eye(200), 50), np.ones(200), np.ones(200), csr_array(np.eye(200)), k=3)


def test_ids_of_histories_are_read_as_the_model_s():
    texts = Interactions.from_pairs(list("aabbc"), ["10", "20", "10", "x", "20"])
    numbers = Interactions.from_pairs(list("aabbc"), [10, 20, 10, 30, 20])
    asked = {"text": Interactions.from_pairs(["u"], ["10"]), "number": Interactions.from_pairs(["u"], [10])}
    for data in (texts, numbers):
        model = EASE(l2=1.0).fit(data)
        assert_same_bits(model.recommend(asked["text"]), model.recommend(asked["number"]))
        assert not model.recommend(asked["text"]).from_popularity.any()


class TestSeveralModels:
    """Models that share P in one pass: the same bits as one after the other."""

    @pytest.fixture(scope="class")
    @classmethod
    def several(cls, random_matrix):
        generator = np.random.default_rng(0)
        R = random_matrix(400, 300).toarray()
        packed = PackedSymmetric.from_dense(np.linalg.inv(R.T @ R + 9 * np.eye(300)).astype(np.float32), tile=128)
        gains, shifts = -generator.uniform(0.1, 9, (4, 300)), generator.standard_normal((4, 300))
        gains[1, ::3] = 0
        gains[2] *= np.where(generator.random(300) < 0.5, 1, -1)
        return packed, gains, shifts, random_matrix(70, 300, seed=2, weighted=True)

    @pytest.mark.parametrize("exclude_seen", [True, False])
    def test_as_each_alone(self, several, exclude_seen):
        packed, gains, shifts, histories = several
        items, scores = rank(packed, gains, shifts, histories, k=12, exclude_seen=exclude_seen)
        assert items.shape == scores.shape == (4, 70, 12)
        for m in range(4):
            alone = rank(packed, gains[m], shifts[m], histories, k=12, exclude_seen=exclude_seen)
            assert_same_bits((items[m], scores[m]), alone)

    @pytest.mark.parametrize("exclude_seen", [True, False])
    @pytest.mark.parametrize("kind", ["alike", "unlike", "tied"])
    def test_many_as_each_alone_and_as_the_dense_product(self, several, kind, exclude_seen):
        """Candidates are collected for all models together, whether they want the same items or not."""
        packed, _, _, histories = several
        generator = np.random.default_rng(5)
        alike = -(1 + np.linspace(0, 1, 25)[:, None] * generator.random(300))
        gains = {"alike": alike, "unlike": generator.standard_normal((25, 300)), "tied": np.round(alike)}[kind]
        shifts = generator.standard_normal((25, 300))
        if kind == "tied":
            packed = PackedSymmetric.from_dense(np.sign(packed.to_dense()), tile=128)
            histories = csr_array((histories > 0).astype(float))
        allowed = generator.random(300) < 0.9
        options = {"k": 6, "exclude_seen": exclude_seen, "allowed": allowed}
        items, scores = rank(packed, gains, shifts, histories, **options)
        X, P = histories.toarray(), packed.to_dense().astype(float)
        for m in range(25):
            assert_same_bits((items[m], scores[m]), rank(packed, gains[m], shifts[m], histories, **options))
            dense = X @ (P * gains[m] + np.diag(shifts[m]))
            blocked = ((X > 0) & exclude_seen) | ~allowed
            np.testing.assert_allclose(scores[m], best(dense, 6, blocked)[1], rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("_USERS_PER_SLICE", 300), ("_CANDIDATE_BYTES", 1), ("_STRIP_NUMBERS", 1), ("_WORK_PER_THREAD", 1)],
    )
    def test_however_the_work_is_cut(self, several, name, value, monkeypatch):
        packed, gains, shifts, histories = several
        many = vstack([histories] * 9, format="csr")
        squares = np.zeros((2, 4, many.shape[0]))
        expected = rank(packed, gains, shifts, many, k=12, squares=squares[0])
        monkeypatch.setattr(f"deql.ranking.rank.{name}", value)
        monkeypatch.setenv("DEQL_THREADS", "3")
        assert_same_bits(rank(packed, gains, shifts, many, k=12, squares=squares[1]), expected)
        assert squares[0].tobytes() == squares[1].tobytes()

    def test_squares_are_of_what_a_user_does_not_have(self, several):
        packed, gains, shifts, histories = several
        squares = np.zeros((4, 70))
        rank(packed, gains, shifts, histories, k=1, squares=squares)
        X, P = histories.toarray(), packed.to_dense().astype(float)
        for m in range(4):
            scores = X @ (P * gains[m] + np.diag(shifts[m]))
            np.testing.assert_allclose(squares[m], (np.where(X > 0, 0, scores) ** 2).sum(axis=1), rtol=1e-12)

    def test_items_are_the_same_if_scores_need_not_be_exact(self, several):
        packed, gains, shifts, histories = several
        expected = rank(packed, gains, shifts, histories, k=12)
        found = rank(packed, gains, shifts, histories, k=12, exact=False)
        assert_ranked(found, expected, rtol=1e-12)

    def test_progress_ends_at_the_whole(self, several):
        packed, gains, shifts, histories = several
        seen = []
        rank(packed, gains, shifts, histories, k=3, report=lambda done, total: seen.append((done, total)))
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1]


def test_a_row_without_a_history_has_no_list_of_its_own():
    packed = PackedSymmetric.from_dense(np.eye(5), 5)
    items, scores = rank(packed, np.ones(5), np.zeros(5), csr_array((2, 5)), k=2)
    assert items.tolist() == [[-1, -1]] * 2
    assert np.isnan(scores).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_near_ties_are_decided_alike_whether_scores_must_be_exact_or_not(dtype, random_matrix):
    twins = csr_array(np.repeat(random_matrix(150, 15).toarray(), 20, axis=1))
    model = EASE(l2=20.0, dtype=dtype).fit(twins)
    lists = [rank(model.precision_, model.gain_, model.shift_, twins, k=30, exact=exact)[0] for exact in (True, False)]
    np.testing.assert_array_equal(*lists)


@pytest.mark.parametrize("columns", [[2, 0], [1, 1]])
def test_histories_that_are_not_in_order_never_reach_the_kernels(columns):
    P = PackedSymmetric.from_dense(np.eye(3), tile=3)
    with pytest.raises(ValueError, match="sorted within rows, each once"):
        rank(P, -np.ones(3), np.ones(3), csr_array((np.ones(2), columns, [0, 2]), shape=(1, 3)), k=2)
