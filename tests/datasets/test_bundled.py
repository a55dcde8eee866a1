import gzip
import lzma
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import deql

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_debian_dataset.py"

INDEX = """\
Package: alpha
Version: 1:2.0-1
Pre-Depends: dpkg (>= 1.17.14)
Depends: libc6 (>= 2.34), beta (= 1.0) | gamma, delta:any (>= 3) | epsilon
Recommends: zeta [amd64 arm64], g++
Suggests: python3.11-doc | python-doc
Description: first of its kind
 Depends: not, a, field
 .
 Suggests: neither

Package: beta
Depends: libc6,
 libgcc-s1 (>= 3.0)
  | libgcc1,
\tlibstdc++6
Architecture: all

Package: gamma
Conflicts: alpha
Breaks: beta
Enhances: delta
Provides: epsilon
"""


@pytest.fixture(scope="module")
def debian():
    return deql.datasets.debian()


@pytest.fixture(scope="module")
def script():
    spec = spec_from_file_location("build_debian_dataset", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_shape(debian):
    assert (debian.n_users, debian.n_items, debian.n_interactions) == (17_432, 5_834, 173_855)
    assert set(debian.matrix.data.tolist()) == {1.0}


def test_every_user_and_item_has_five_interactions(debian):
    assert np.diff(debian.matrix.indptr).min() >= 5
    assert np.bincount(debian.matrix.indices, minlength=debian.n_items).min() >= 5


def test_names_are_text_that_one_recognises(debian):
    for names in (debian.users, debian.items):
        assert all(type(name) is str and name == name.strip() != "" for name in names.tolist())
    assert {"libc6", "python3", "perl"} <= set(debian.items.tolist())
    assert "libgtk-3-0" in debian.history("firefox-esr")


def test_the_file_is_small_enough_to_travel():
    assert files("deql.datasets").joinpath("debian-bookworm.parquet").stat().st_size < 1_500_000


def test_parser_takes_the_first_alternative_without_version_or_architecture(script):
    pairs = list(script.named_packages(INDEX))
    assert sorted(item for user, item in pairs if user == "alpha") == [
        "beta", "delta", "dpkg", "g++", "libc6", "python3.11-doc", "zeta",
    ]  # fmt: skip


def test_parser_joins_folded_lines(script):
    named = [item for user, item in script.named_packages(INDEX) if user == "beta"]
    assert named == ["libc6", "libgcc-s1", "libstdc++6"]


def test_parser_ignores_other_fields(script):
    assert {user for user, _ in script.named_packages(INDEX)} == {"alpha", "beta"}


def test_core_drops_again_what_a_drop_leaves_too_rare(script):
    # Round 1 drops z (once) and with it c's second item; round 2 drops c, which leaves y once;
    # round 3 drops y, and then b has x and w, a has x and w.
    rows = [("a", "x"), ("a", "w"), ("b", "x"), ("b", "w"), ("b", "y"), ("c", "y"), ("c", "z")]
    pairs = pl.DataFrame(rows, schema=["package", "names"], orient="row")
    assert sorted(script.core(pairs, 2).rows()) == [("a", "w"), ("a", "x"), ("b", "w"), ("b", "x")]
    assert script.core(pairs, 3).is_empty()
    assert script.core(pairs, 1).equals(pairs)


@pytest.mark.parametrize(
    ("name", "opener"), [("Packages", open), ("Packages.gz", gzip.open), ("Packages.xz", lzma.open)]
)
def test_script_writes_the_core_once_and_sorted(script, tmp_path, capsys, name, opener):
    users, items = [f"user{i}" for i in range(5)], [f"item{i}" for i in range(5)]
    stanzas = [f"Package: {user}\nDepends: {', '.join(reversed(items))}, item0, rare-{user}\n" for user in users]
    with opener(tmp_path / name, "wt") as file:
        file.write("\n".join(stanzas))
    script.main(str(tmp_path / name), str(tmp_path / "out.parquet"))
    assert pl.read_parquet(tmp_path / "out.parquet").rows() == [(user, item) for user in users for item in items]
    assert capsys.readouterr().out.startswith("5 packages × 5 names, 25 interactions")
