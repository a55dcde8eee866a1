"""Each loss against numbers worked out by hand, and against its textbook form in PyTorch."""

from math import exp, log, sqrt

import pytest

torch = pytest.importorskip("torch")
from torch.nn.functional import cross_entropy, logsigmoid, normalize  # noqa: E402

from deql.models.neural.losses import bpr, info_nce, sampled_softmax, squared_lengths  # noqa: E402
from tests.models.neural.dense import gradient, vectors  # noqa: E402

BATCH = 6
WEIGHTS = torch.tensor([1.0, 0.25, 2.0, 0.5, 3.0, 0.75], dtype=torch.float64)


def pairs_of_vectors(seed=0):
    return [vectors(BATCH, rank=4, seed=seed + side).requires_grad_() for side in (0, 1)]


def mean(losses):
    return (WEIGHTS * losses).sum() / WEIGHTS.sum()


def assert_same(found, expected, *given):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for one in given:
        torch.testing.assert_close(gradient(found, one), gradient(expected, one), rtol=1e-10, atol=1e-12)


def assert_same_with_gradients(loss, textbook, *given):
    for one in given:
        assert_same(loss(), textbook(), one)


def softmax_by_hand(users, items, temperature, negatives):
    """−log of the own item's share among it and the others of the first pairs."""
    cosines = normalize(users) @ normalize(items).T / temperature
    rows = []
    for pair in range(len(users)):
        others = [place for place in range(min(negatives, len(items))) if place != pair]
        rows.append(cross_entropy(cosines[pair, [pair, *others]][None], torch.tensor([0])))
    return mean(torch.stack(rows))


class TestBpr:
    def test_of_two_pairs(self):
        positive, negative, weights = (torch.tensor(given) for given in ([2.0, 0.5], [0.0, 1.0], [1.0, 3.0]))
        expected = (1 * log(1 + exp(-2)) + 3 * log(1 + exp(0.5))) / 4
        assert bpr(positive, negative, weights).item() == pytest.approx(expected, rel=1e-6)

    def test_is_the_sigmoid_s_logarithm(self):
        positive, negative = (vectors(BATCH, rank=1, seed=seed)[:, 0].requires_grad_() for seed in (2, 3))
        assert_same_with_gradients(
            lambda: bpr(positive, negative, WEIGHTS),
            lambda: mean(-logsigmoid(positive - negative)),
            positive, negative,
        )  # fmt: skip

    def test_of_scores_far_apart_is_their_difference(self):
        score = torch.tensor([-500.0, 500.0], requires_grad=True)
        loss = bpr(score, -score, torch.ones(2))
        assert loss.item() == 500.0
        assert gradient(loss, score).tolist() == [-1.0, 0.0]


class TestSampledSoftmax:
    def test_of_three_pairs(self):
        """The first two items stand against all; cosines are 1, 0, 0.6 and 0.8 alone."""
        users = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
        items = torch.tensor([[5.0, 0.0], [0.6, 0.8], [0.0, 0.1]])
        t = 0.5
        first = log((exp(1 / t) + exp(0.6 / t)) / exp(1 / t))
        second = log((exp(0 / t) + exp(0.8 / t)) / exp(0.8 / t))
        third = log((exp(1 / t) + exp(0.6 / t) + exp(0 / t)) / exp(0 / t))
        found = sampled_softmax(users, items, torch.tensor([1.0, 2.0, 5.0]), t, negatives=2)
        assert found.item() == pytest.approx((first + 2 * second + 5 * third) / 8, rel=1e-6)

    @pytest.mark.parametrize("negatives", [1, 4, BATCH, 100])
    @pytest.mark.parametrize("temperature", [0.07, 1.0])
    def test_is_the_cross_entropy_of_cosines(self, negatives, temperature):
        users, items = pairs_of_vectors()
        assert_same_with_gradients(
            lambda: sampled_softmax(users, items, WEIGHTS, temperature, negatives),
            lambda: softmax_by_hand(users, items, temperature, negatives),
            users, items,
        )  # fmt: skip

    def test_counts_an_item_that_several_pairs_have_as_often(self):
        users, items = pairs_of_vectors(seed=4)
        with torch.no_grad():
            items[3] = items[0]
            items[4] = items[2]
        found = sampled_softmax(users, items, WEIGHTS, 0.3, 3)
        assert_same(found, softmax_by_hand(users, items, 0.3, 3), items)

    def test_asks_for_directions_alone(self):
        users, items = pairs_of_vectors(seed=6)
        lengths = torch.linspace(0.1, 30, BATCH)[:, None]
        found = sampled_softmax(users * lengths, items / lengths, WEIGHTS, 0.2, 4)
        torch.testing.assert_close(found, sampled_softmax(users, items, WEIGHTS, 0.2, 4))

    def test_the_lowest_temperature_leaves_numbers(self):
        """An own item that is opposite, others that are the user's very direction, in float32."""
        users = torch.tensor([[1.0, 0.0], [1.0, 0.0]], requires_grad=True)
        items = torch.tensor([[1.0, 0.0], [-1.0, 1e-3]])
        loss = sampled_softmax(users, items, torch.ones(2), 0.025, 1)
        assert loss.item() == pytest.approx(80 / 2, rel=1e-4)
        assert gradient(loss, users).isfinite().all()

    @pytest.mark.parametrize("negatives", [2, 100])
    def test_the_gradient_is_that_of_finite_differences(self, negatives):
        users, items = pairs_of_vectors(seed=8)
        assert torch.autograd.gradcheck(lambda *given: sampled_softmax(*given, WEIGHTS, 0.4, negatives), [users, items])


class TestInfoNCE:
    def test_of_two_vertices(self):
        one = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
        other = torch.tensor([[1.0, 1.0], [0.0, 3.0]])
        t, cosine = 0.5, 1 / sqrt(2)
        first = log((exp(cosine / t) + exp(0 / t)) / exp(cosine / t))
        second = log((exp(cosine / t) + exp(1 / t)) / exp(1 / t))
        assert info_nce(one, other, torch.ones(2), t).item() == pytest.approx((first + second) / 2, rel=1e-6)

    @pytest.mark.parametrize("temperature", [0.07, 0.2, 1.0])
    def test_is_the_cross_entropy_of_one_view_s_vertices_among_the_other_s(self, temperature):
        one, other = pairs_of_vectors(seed=10)
        assert_same_with_gradients(
            lambda: info_nce(one, other, torch.ones(BATCH, dtype=torch.float64), temperature),
            lambda: cross_entropy(normalize(one) @ normalize(other).T / temperature, torch.arange(BATCH)),
            one, other,
        )  # fmt: skip

    def test_a_weight_counts_on_both_sides(self):
        """Vertex 1 with the weight 3, as if it were there three times."""
        one, other = (vectors(2, seed=seed) for seed in (12, 13))
        places = torch.tensor([0, 1, 1, 1])
        found = info_nce(one, other, torch.tensor([1.0, 3.0], dtype=torch.float64), 0.3)
        expected = info_nce(one[places], other[places], torch.ones(4, dtype=torch.float64), 0.3)
        torch.testing.assert_close(found, expected)

    def test_repeats_that_share_a_weight_are_one_vertex(self):
        one, other = pairs_of_vectors(seed=14)
        places, distinct = torch.tensor([2, 0, 2, 5, 2, 0]), torch.tensor([2, 0, 5])
        shares = torch.tensor([1 / 3, 1 / 2, 1 / 3, 1, 1 / 3, 1 / 2], dtype=torch.float64)
        assert_same_with_gradients(
            lambda: info_nce(one[places], other[places], shares, 0.2),
            lambda: info_nce(one[distinct], other[distinct], torch.ones(3, dtype=torch.float64), 0.2),
            one, other,
        )  # fmt: skip

    def test_the_gradient_is_that_of_finite_differences(self):
        one, other = pairs_of_vectors(seed=16)
        assert torch.autograd.gradcheck(lambda *given: info_nce(*given, WEIGHTS, 0.4), [one, other])


class TestSquaredLengths:
    def test_of_two_pairs(self):
        users, items = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[0.0, 4.0], [1.0, 1.0]])
        found = squared_lengths(torch.stack([users, items]), torch.tensor([1.0, 3.0]))
        assert found.item() == (1 * (5 + 16) + 3 * (9 + 2)) / 2 / 4

    def test_the_gradient_is_each_vector_by_its_pair_s_share(self):
        given = vectors(3 * BATCH, rank=2, seed=18).view(3, BATCH, 2).requires_grad_()
        expected = given * (WEIGHTS / WEIGHTS.sum())[None, :, None]
        torch.testing.assert_close(gradient(squared_lengths(given, WEIGHTS), given), expected)
