import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")
from deql.models.neural import graph as graphs  # noqa: E402
from deql.models.neural.graph import BipartiteGraph, propagate  # noqa: E402
from tests.models.neural.dense import (  # noqa: E402
    CPU,
    TASTES,
    adjacency,
    gradient,
    graph_of,
    propagated,
    summed_powers,
    vectors,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True, params=["sums of rows", "compressed rows"])
def product(request):
    """As processors multiply, and as GPUs do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "compressed rows":
            patch.setattr(graphs, "_COMPRESSED_ON", {"cpu"})
        yield


SIDES = st.integers(1, 6)
TABLES = st.tuples(SIDES, SIDES).flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(0, 3)))
"""Users × items; most have users and items without an edge."""


def with_some_edges(R, seed):
    """Which edges are kept, for ``normalised``, and the table without the others."""
    matrix = csr_array(R)
    kept = np.random.default_rng(seed).random(matrix.nnz) < 0.6
    left = csr_array((matrix.data * kept, matrix.indices, matrix.indptr), shape=matrix.shape).toarray()
    return torch.from_numpy(matrix.data * kept), left


def close(found, expected):
    """But for the rounding of Â's numbers to float32."""
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@given(R=TABLES, layers=st.integers(0, 4), dropped=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_propagation_and_its_gradient_are_those_of_the_definition(R, layers, dropped, seed):
    graph, E, slopes = graph_of(R), vectors(sum(R.shape), seed=seed).requires_grad_(), vectors(sum(R.shape), seed=100)
    values = None
    if dropped:
        weights, R = with_some_edges(R, seed)
        values = graph.normalised(weights)
    found, expected = propagate(E, graph, layers, values), propagated(adjacency(R), E, layers)
    close(found, expected)
    close(*(gradient((result * slopes).sum(), E) for result in (found, expected)))


@given(R=TABLES, most=st.integers(0, 4), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_powers_are_summed_and_what_is_given_stays(R, most, seed):
    graph, E = graph_of(R), vectors(sum(R.shape), seed=seed)
    before = E.clone()
    close(graph.sum_of_powers(E, most), summed_powers(adjacency(R), E, most))
    assert torch.equal(E, before)


@given(R=TABLES, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_numbers_of_some_edges_are_normalised_anew(R, seed):
    graph = graph_of(R)
    weights, left = with_some_edges(R, seed)
    every = torch.eye(sum(R.shape), dtype=torch.float64)
    found = graph.spread(every, graph.normalised(weights))
    close(found, adjacency(left))
    assert torch.equal(found, found.T)
    close(graph.spread(every), adjacency(R))


def test_items_are_passed_to_users():
    items = vectors(6, seed=1)
    close(graph_of(TASTES).to_users(items), adjacency(TASTES)[:7, 7:] @ items)


def test_weights_times_a_number_are_the_same_graph():
    every = torch.eye(13)
    torch.testing.assert_close(graph_of(TASTES * 1e30).spread(every), graph_of(TASTES).spread(every))


def test_items_of_a_user_may_come_in_any_order():
    indptr, indices, values = np.array([0, 3, 3, 5]), np.array([2, 0, 1, 3, 2]), np.array([1.0, 2.0, 3.0, 0.5, 4.0])
    dense = csr_array((values, indices, indptr), shape=(3, 4)).toarray()
    graph = BipartiteGraph.from_arrays(indptr, indices, values, 4, CPU)
    close(graph.spread(torch.eye(7, dtype=torch.float64)), adjacency(dense))
    assert graph.user_degrees.tolist() == [6.0, 0.0, 4.5]
    assert graph.item_degrees.tolist() == [2.0, 3.0, 5.0, 0.5]


def test_who_is_alone_keeps_a_share_of_the_own_vector():
    E = vectors(13)
    found = propagate(E, graph_of(TASTES), layers=3)
    torch.testing.assert_close(found[[3, 8]], E[[3, 8]] / 4)


def test_no_layers_leave_the_vectors_as_they_are():
    E = vectors(13)
    assert propagate(E, graph_of(TASTES), layers=0) is E


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_gradient_is_that_of_finite_differences(layers):
    graph = graph_of(TASTES[:3])
    E = vectors(9, rank=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda given: propagate(given, graph, layers), [E])


def test_nothing_of_vertices_by_vertices_is_held():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, tuple) else [made]:
                if isinstance(one, torch.Tensor):
                    held = one.numel() if one.layout == torch.strided else one._nnz()
                    self.numbers = max(self.numbers, held)
            return made

    users, items, rank = 3000, 2000, 4
    generator = np.random.default_rng(0)
    ends = generator.integers(users, size=4000), generator.integers(items, size=4000)
    R = csr_array((np.ones(4000), ends), shape=(users, items))
    E = torch.ones(users + items, rank, requires_grad=True)
    with Largest() as largest:
        graph = BipartiteGraph.from_arrays(R.indptr, R.indices, R.data, items, CPU)
        gradient(propagate(E, graph, layers=3).sum(), E)
    assert 0 < largest.numbers <= (users + items) * rank
