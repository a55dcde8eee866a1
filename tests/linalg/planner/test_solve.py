import importlib.util

import numpy as np
import pytest

import deql
from deql.engines import Auto, Disk, Memory, Torch
from deql.errors import DeqlError, ParameterError, TileFileError
from deql.linalg.planner.choose import as_engine

L2 = {"l2": 20.0, "dropout": 0.3, "b": 0.5}
AN_OBJECT = r"or an object of deql\.engines, such as deql\.engines\.Disk\(memory='4GiB'\)$"


@pytest.fixture(scope="module")
def data():
    # Above 2,048 items the matrix is cut into several tiles.
    generator = np.random.default_rng(0)
    popularity = 1 / (np.arange(2100) + 20.0)
    items = generator.choice(2100, 20_000, p=popularity / popularity.sum())
    items = np.concatenate([items, np.arange(2100)])
    return deql.Interactions.from_pairs(generator.integers(0, 400, len(items)), items)


def engines(tmp_path):
    on_host = {
        "memory": {"engine": "memory"},
        "disk": {"engine": Disk("64MiB")},
        "disk in a folder": {"engine": Disk("64MiB", tmp_path / "tiles")},
    }
    if importlib.util.find_spec("torch") is None:
        return on_host
    return on_host | {
        "torch": {"engine": Torch("cpu")},
        "torch, split": {"engine": Torch("cpu", "fp16x3")},
    }


def test_all_engines_give_the_same_model(data, tmp_path):
    models = {label: deql.DEQL(**L2, user_power=0.5, **where).fit(data) for label, where in engines(tmp_path).items()}
    first = models["memory"]
    expected, scores = first.recommend(data, k=20)
    for label, model in models.items():
        assert model.engine_ == label.split(",")[0].split()[0]
        P, Q = model.precision_.to_dense(), first.precision_.to_dense()
        assert np.abs(P - Q).max() < 1e-5 * np.abs(Q).max()
        ids, found = model.recommend(data, k=20)
        np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-6)
        # Items that the same users have differ by rounding alone, and then either may come first.
        agree = (ids == expected).all(axis=1) | (np.abs(np.diff(scores, axis=1)).min(axis=1) < 1e-5)
        assert agree.mean() >= 0.999


def test_float64_is_to_be_had_from_every_engine(data, tmp_path):
    models = [
        deql.DEQL(**L2, **where, dtype="float64", user_power=0.3).fit(data)
        for label, where in engines(tmp_path).items()
        if label != "torch, split"
    ]
    for model in models:
        assert model.precision_.dtype == np.float64
        np.testing.assert_allclose(model.weights(), models[0].weights(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("where", "match"),
    [
        (lambda: {"engine": "gpu"}, rf"engine must be .*, got 'gpu': .*{AN_OBJECT}"),
        (lambda: {"engine": Disk}, rf"engine must be .*, got the class Disk: .*{AN_OBJECT}"),
        (lambda: {"engine": Torch(device="tpu")}, "device must be"),
        (lambda: {"engine": Torch(arithmetic="half")}, "arithmetic must be one of"),
        (lambda: {"engine": Torch(arithmetic="float64")}, "does not go with dtype"),
        (lambda: {"engine": Torch(arithmetic="tf32"), "dtype": "float64"}, "does not go with dtype"),
        (lambda: {"engine": Disk("4 potatoes")}, "memory"),
        (lambda: {"engine": Auto("4 potatoes")}, "memory"),
        (lambda: {"engine": Memory("4 potatoes")}, "memory"),
        (lambda: {"engine": Disk(folder=7)}, "folder must be a path"),
        (lambda: {"engine": Disk(1000)}, "at least"),
    ],
)
def test_what_cannot_be_is_said_before_any_work(data, where, match):
    with pytest.raises(DeqlError, match=match):
        deql.DEQL(**L2, **where()).fit(data)


def test_a_folder_is_of_one_fit(data, tmp_path):
    where = {"engine": Disk("64MiB", tmp_path / "tiles")}
    first = deql.DEQL(**L2, **where).fit(data)
    again = deql.DEQL(**L2, **where).fit(data)
    np.testing.assert_array_equal(first.precision_.data, again.precision_.data)
    with pytest.raises(TileFileError):
        deql.DEQL(**(L2 | {"l2": 21.0}), **where).fit(data)


def test_a_model_says_nothing_of_the_machine_in_its_file(data, tmp_path):
    model = deql.DEQL(**L2, engine=Disk("64MiB", tmp_path / "tiles")).fit(data)
    model.save(tmp_path / "model.deql")
    assert b"tiles" not in (tmp_path / "model.deql").read_bytes()
    loaded = deql.load(tmp_path / "model.deql")
    assert (loaded.engine_, as_engine(loaded.engine)) == ("disk", Disk())
    np.testing.assert_array_equal(loaded.weights(), model.weights())


def test_ranking_on_a_device_changes_nothing(data, monkeypatch):
    torch = pytest.importorskip("torch")
    model = deql.DEQL(**L2).fit(data)
    ids, scores = model.recommend(data, k=5)
    monkeypatch.setattr("deql.linalg.engines.torch_packed.open_device", lambda name: torch.device("cpu"))
    assert model.to("cuda").on_device_ is not None
    assert model.with_rule(b=2.0).on_device_ is model.on_device_
    there, found = model.recommend(data, k=5)
    np.testing.assert_array_equal(ids, there)
    np.testing.assert_array_equal(scores, found)
    assert model.to("cpu").on_device_ is None


def test_what_does_not_go_with_a_type():
    as_engine("auto").check("float32")
    with pytest.raises(ParameterError, match="dtype must be"):
        as_engine("auto").check("float16")


def test_engines_are_equal_by_value_and_go_where_parameters_go(data):
    from sklearn.base import clone

    engine = Disk("64MiB", "tiles")
    model = deql.DEQL(**L2, engine=engine)
    other = clone(model)
    assert other.engine == engine == Disk(memory="64MiB", folder="tiles")
    assert hash(other.engine) == hash(engine)
    assert other.engine is not engine
    assert model.set_params(engine=Torch(arithmetic="tf32")).get_params()["engine"] == Torch(None, "tf32")
    assert repr(Torch(device="cuda:1")) == "Torch(device='cuda:1')"
    with pytest.raises(AttributeError):
        engine.memory = "1GiB"


def test_an_arithmetic_is_part_of_a_model_s_file(data, tmp_path):
    pytest.importorskip("torch")
    model = deql.DEQL(**L2, engine=Torch("cpu", "tf32x3")).fit(data)
    model.save(tmp_path / "model.deql")
    assert deql.load(tmp_path / "model.deql").engine == Torch(arithmetic="tf32x3")
    assert b"cpu" not in (tmp_path / "model.deql").read_bytes()[:4000]
