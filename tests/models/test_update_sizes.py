"""Updates of stores that are one tile, that are cut, and that become the one or the other."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql


def some(users, items, seed, first=0, offset=0):
    """Users with a few items each, as popular as no other."""
    generator = np.random.default_rng(seed)
    chance = np.geomspace(0.002, 0.1, items)[generator.permutation(items)]
    R = (generator.random((users, items)) < chance) * generator.uniform(0.5, 2.0, (users, items))
    R[np.arange(users), generator.integers(0, items, users)] = 1
    return deql.Interactions.from_csr(
        csr_array(R), users=np.arange(first, first + users), items=np.arange(offset, offset + items)
    )


@pytest.mark.parametrize("engine", ["memory", deql.engines.Disk(memory="64MiB")])
@pytest.mark.parametrize(
    ("items", "retired", "new"),
    [(500, 0, 30), (530, 40, 0), (530, 3, 5), (700, 0, 0), (700, 250, 0), (1100, 120, 60), (500, 500, 20)],
)
def test_items_come_and_go_across_the_width_of_a_tile(items, retired, new, engine, tmp_path):
    model = deql.EDLAE(l2=3.0, dropout=0.2, user_power=0.3, dtype="float64", engine=engine)
    model.fit(some(900, items, 0), keep_data=True)
    gone = np.random.default_rng(1).permutation(items)[:retired].tolist()
    come = some(8, new + 20, 2, 5000, 9000) if new else some(8, items, 2, 5000)
    come = come if new or not retired else come.take_items(~np.isin(come.items, gone)).without_empty()
    report = model.update(come, retire_items=gone, forget_users=[3, 4], method="low rank")
    assert report.residual < 1e-10
    expected = deql.EDLAE(l2=3.0, dropout=0.2, user_power=0.3, dtype="float64").fit(model.data_)
    P, exact = model.precision_.to_dense(), expected.precision_.to_dense()
    assert np.abs(P - exact).max() <= 1e-10 * np.abs(exact).max()
    model.save(tmp_path / "model.deql")
    histories = model.data_.take_users(np.arange(5))
    found, wanted = (one.recommend(histories, k=5) for one in (deql.load(tmp_path / "model.deql"), expected))
    assert found.ids.tolist() == wanted.ids.tolist()
    assert np.allclose(found.scores, wanted.scores)
