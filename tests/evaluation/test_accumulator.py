import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from deql.ranking import NO_ITEM
from deql.ranking.hits import find_hits


@pytest.mark.parametrize("density", [0.0, 0.1, 0.9])
def test_are_the_ranked_items_that_are_in_the_row(density):
    generator = np.random.default_rng(4)
    truth = csr_array(random_array((30, 17), density=density, rng=generator))
    columns = np.stack([[generator.permutation(17)[:5] for _ in range(30)] for _ in range(3)]).astype(np.int32)
    columns[generator.random(columns.shape) < 0.2] = NO_ITEM
    held_out = [set(row.tolist()) for row in np.split(truth.indices, truth.indptr[1:-1])]
    expected = [[[item in held_out[u] for item in row] for u, row in enumerate(lists)] for lists in columns.tolist()]
    assert find_hits(columns, truth).tolist() == expected
