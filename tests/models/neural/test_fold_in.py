import numpy as np
import pytest

torch = pytest.importorskip("torch")
from deql.models.neural.fold_in import fold_in  # noqa: E402
from deql.models.neural.network import Network  # noqa: E402
from tests.models.neural.dense import TASTES, adjacency, graph_of, propagated, summed_powers, vectors  # noqa: E402


class Plain(Network):
    def loss(self, E, pairs):
        raise NotImplementedError


def many_tastes(users=40, items=9):
    generator = np.random.default_rng(2)
    R = (generator.random((users, items)) < np.linspace(0.15, 0.7, items)) * generator.integers(1, 9, (users, items))
    R[4] = 0
    R[:, 6] = 0
    return R / 8.0


def folded(R, layers, rank=3):
    """The factors in float64, and the vectors that the network ranks by."""
    E, network = vectors(sum(R.shape), rank).float(), Plain(graph_of(R), layers)
    found = fold_in(network.graph, network.vectors(E), network.passed_on(E))
    return *(part.double().numpy() for part in found), propagated(adjacency(R), E.double(), layers).numpy(), E.double()


@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("R", [TASTES, many_tastes()], ids=["few", "many"])
def test_users_of_the_graph_keep_their_vectors(R, layers):
    """x·left + own is √d times the network's own: the same order, to the last item."""
    left, right, own, Z, _ = folded(R, layers)
    users = len(R)
    expected = np.sqrt(R.sum(axis=1))[:, None] * Z[:users]
    np.testing.assert_allclose(R @ left + own, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(right, Z[users:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_histories_are_folded_in_by_least_squares(layers):
    R = many_tastes()
    left, _, _, Z, E = folded(R, layers)
    A, users = adjacency(R), len(R)
    passed_on = summed_powers(A, E, layers - 1).numpy()[users:]
    reached = A.numpy()[:users, users:] @ passed_on
    M = np.linalg.lstsq(reached, Z[:users], rcond=None)[0]
    degrees = R.sum(axis=0)
    scale = np.divide(1, np.sqrt(degrees), where=degrees > 0, out=np.zeros(len(degrees)))
    np.testing.assert_allclose(left, scale[:, None] * passed_on @ M, rtol=1e-3, atol=1e-4)


def test_users_whose_vectors_follow_from_their_items_have_none_of_their_own():
    R = many_tastes()
    graph, users = graph_of(R), len(R)
    items, M = vectors(9, seed=5).float(), vectors(3, seed=6).float()
    everybody = torch.cat([graph.to_users(items) @ M, items])
    _, _, own = fold_in(graph, everybody, items)
    assert own.shape == (users, 3)
    assert own.abs().max() < 1e-4


def test_a_user_and_an_item_alone_have_nothing():
    left, _, own, _, _ = folded(TASTES, layers=2)
    assert not left[1].any()
    assert not own[3].any()


def test_vectors_that_depend_on_each_other_are_no_obstacle():
    """Of rank 1, and of rank 0."""
    for E in (torch.ones(13, 4), torch.zeros(13, 4)):
        network = Plain(graph_of(TASTES), 2)
        found = fold_in(network.graph, network.vectors(E), network.passed_on(E))
        assert all(part.isfinite().all() for part in found)
        x = torch.from_numpy(TASTES).float()
        expected = torch.from_numpy(np.sqrt(TASTES.sum(axis=1)))[:, None] * network.vectors(E)[:7]
        torch.testing.assert_close((x @ found.left + found.own).double(), expected.double(), rtol=1e-4, atol=1e-4)
