"""The whole loss of each network, and its gradient, against its definition on dense matrices."""

import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")
from torch.nn.functional import cross_entropy, logsigmoid, normalize  # noqa: E402

from deql.models.neural.lightgcn_network import LightGCNNetwork  # noqa: E402
from deql.models.neural.negatives import NegativeSampler  # noqa: E402
from deql.models.neural.sgl_network import SGLNetwork  # noqa: E402
from deql.models.neural.ssm_network import SSMNetwork  # noqa: E402
from tests.models.neural.dense import (  # noqa: E402
    TASTES,
    adjacency,
    gradient,
    graph_of,
    propagated,
    summed_powers,
    vectors,
)  # fmt: skip

USERS, ITEMS = TASTES.shape
MATRIX = csr_array(TASTES)
FIRST, SECOND = np.nonzero(TASTES)  # the ends of each edge, in its order
PAIRS = torch.tensor([9, 0, 4, 13, 2, 7, 11])
"""A batch in which users and items come again."""


def ends(pairs=PAIRS):
    return FIRST[pairs], SECOND[pairs] + USERS, torch.from_numpy(MATRIX.data[pairs])


def generator():
    return torch.Generator().manual_seed(3)


def lengths(E, weights, *rows):
    squares = sum(E[row].square().sum(dim=1) for row in rows) / 2
    return (weights * squares).sum() / weights.sum()


def lightgcn_loss(E, layers, weight_decay, others):
    users, items, weights = ends()
    others = others[PAIRS].numpy() + USERS
    Z = propagated(adjacency(TASTES), E, layers)
    losses = -logsigmoid((Z[users] * Z[items]).sum(dim=1) - (Z[users] * Z[others]).sum(dim=1))
    return (weights * losses).sum() / weights.sum() + weight_decay * lengths(E, weights, users, items, others)


def ssm_loss(E, layers, temperature, negatives, weight_decay):
    users, items, weights = ends()
    Z = normalize(propagated(adjacency(TASTES), E, layers))
    total = torch.zeros((), dtype=E.dtype)
    for place in range(len(PAIRS)):
        others = [items[other] for other in range(min(negatives, len(PAIRS))) if other != place]
        cosines = Z[users[place]] @ Z[[items[place], *others]].T
        total = total + weights[place] * cross_entropy(cosines[None] / temperature, torch.tensor([0]))
    return total / weights.sum() + weight_decay * lengths(E, weights, users, items)


def contrast(E, layers, views, vertices, temperature):
    """InfoNCE of distinct vertices."""
    one, other = (normalize(propagated(adjacency(view), E, layers)[np.unique(vertices)]) for view in views)
    return cross_entropy(one @ other.T / temperature, torch.arange(len(one)))


def assert_loss(network, dense, rtol, dtype=torch.float64):
    E = vectors(USERS + ITEMS, rank=4).to(dtype).requires_grad_()
    truth = E.detach().double().requires_grad_()
    found, expected = network.loss(E, PAIRS), dense(truth)
    assert found.item() == pytest.approx(expected.item(), rel=rtol)
    ours, theirs = gradient(found, E).double(), gradient(expected, truth)
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * theirs.abs().max().item())


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("weight_decay", [0.0, 0.7])
def test_lightgcn(layers, weight_decay):
    graph = graph_of(TASTES)
    network = LightGCNNetwork(graph, layers, weight_decay)
    network.begin_epoch(generator())
    others = NegativeSampler(graph).draw(graph.users, generator())
    assert_loss(network, lambda E: lightgcn_loss(E, layers, weight_decay, others), rtol=1e-6)


@pytest.mark.parametrize("layers", [0, 1, 3], ids=["mf", "1 layer", "3 layers"])
@pytest.mark.parametrize("negatives", [3, 1024])
def test_ssm(layers, negatives):
    network = SSMNetwork(graph_of(TASTES), layers, 0.2, negatives, 0.7)
    assert_loss(network, lambda E: ssm_loss(E, layers, 0.2, negatives, 0.7), rtol=1e-5)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("edge_dropout", [0.0, 0.4])
def test_sgl(layers, edge_dropout):
    graph = graph_of(TASTES)
    network = SGLNetwork(graph, layers, 0.3, edge_dropout, 0.5, 0.25)
    network.begin_epoch(generator())
    drawn = generator()
    others = NegativeSampler(graph).draw(graph.users, drawn)
    kept = [(torch.rand(MATRIX.nnz, generator=drawn) >= edge_dropout).numpy() for _ in range(2)]
    views = [csr_array((MATRIX.data * some, MATRIX.indices, MATRIX.indptr), MATRIX.shape).toarray() for some in kept]
    assert np.array_equal(*views) == (edge_dropout == 0.0)

    def dense(E):
        users, items, _ = ends()
        agreed = sum(contrast(E, layers, views, vertices, 0.25) for vertices in (users, items))
        return lightgcn_loss(E, layers, 0.3, others) + 0.5 * agreed

    assert_loss(network, dense, rtol=1e-4, dtype=torch.float32)


def test_sgl_begins_with_the_whole_graph_in_both_views():
    """Before an epoch was begun: steps may be recorded there, and views must be in place."""
    network = SGLNetwork(graph_of(TASTES), 2, 0.0, 0.4, 1.0, 0.25)
    users, items, _ = ends()

    def dense(E):
        agreed = sum(contrast(E, 2, [TASTES, TASTES], vertices, 0.25) for vertices in (users, items))
        return lightgcn_loss(E, 2, 0.0, torch.zeros(MATRIX.nnz, dtype=torch.int32)) + agreed

    assert_loss(network, dense, rtol=1e-4, dtype=torch.float32)


def made(graph):
    return [
        LightGCNNetwork(graph, 2, 0.1),
        SSMNetwork(graph, 2, 0.2, 4, 0.1),
        SSMNetwork(graph, 0, 0.2, 4, 0.1),
        SGLNetwork(graph, 2, 0.1, 0.3, 0.5, 0.2),
    ]


def test_what_ranks_is_propagated_over_the_whole_graph():
    E, A = vectors(USERS + ITEMS), adjacency(TASTES)
    for network in made(graph_of(TASTES)):
        network.begin_epoch(generator())
        torch.testing.assert_close(network.vectors(E), propagated(A, E, network.layers), rtol=1e-6, atol=1e-6)
        passed_on = summed_powers(A, E, max(0, network.layers - 1))[USERS:]
        torch.testing.assert_close(network.passed_on(E), passed_on, rtol=1e-6, atol=1e-6)


def test_an_epoch_draws_anew_and_into_the_same_memory():
    E = vectors(USERS + ITEMS).float()
    for network in made(graph_of(TASTES)):
        places = [part.data_ptr() for part in parts(network)]
        losses = []
        for seed in (1, 2, 1):
            network.begin_epoch(torch.Generator().manual_seed(seed))
            losses.append(network.loss(E, PAIRS).item())
        assert losses[0] == losses[2]
        assert (losses[0] != losses[1]) == isinstance(network, LightGCNNetwork)
        assert [part.data_ptr() for part in parts(network)] == places


def parts(network):
    """The tensors that a network has beside its graph."""
    held = [part for value in vars(network).values() for part in (value if isinstance(value, list) else [value])]
    return [part for part in held if isinstance(part, torch.Tensor)]


def test_a_loss_is_of_its_pairs_alone():
    """The mean over a batch by weights: of each pair alone, put together."""
    E = vectors(USERS + ITEMS).float()
    network = LightGCNNetwork(graph_of(TASTES), 2, 0.3)
    network.begin_epoch(generator())
    alone = np.array([network.loss(E, PAIRS[[place]]).item() for place in range(len(PAIRS))])
    weights = MATRIX.data[PAIRS]
    assert network.loss(E, PAIRS).item() == pytest.approx(np.average(alone, weights=weights), rel=1e-5)
