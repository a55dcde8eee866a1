"""Hyper-parameters in TOML: what is written is read, what is wrong is named, and the best is the best."""

import math
import re
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.datasets.public import PRESETS
from deql.errors import DataError
from deql.paper.hyperparameters import ORIGINS, Choice, best_of_each, read_choices, stored_choices, write_choices
from deql.paper.published import LINEAR, METRICS, WEIGHTED, WITH_PRIOR
from deql.priors import LowPass
from tests.paper.common import SMALL, found, write_small
from tests.tuning.common import market


class TestRoundTrip:
    def test_every_row_and_origin(self):
        chosen = {"gowalla-1": found(), "debian-weak": [
            Choice("EASE", {"l2": 80.0}, "published"),
            Choice("EASE", {"l2": 1e-7}, "test", "read off the test part"),
            Choice("DEQL(L2)", {"l2": 0.1 + 0.2, "dropout": 0.3, "b": math.inf}, "published", "", {"ndcg@20": 1 / 3}),
        ]}  # fmt: skip
        assert read_choices(write_choices(chosen), "a.toml") == chosen

    @settings(max_examples=30)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    def test_any_source(self, source):
        chosen = {"gowalla": [Choice("EASE", {"l2": 80.0}, "found", source)]}
        assert read_choices(write_choices(chosen), "a.toml") == chosen

    def test_origins_come_in_their_order(self):
        text = "[gowalla.EASE]\ntest = {l2 = 1.0}\nfound = {l2 = 2.0}\npublished = {l2 = 3}"
        assert [(one.origin, one.words) for one in read_choices(text, "a.toml")["gowalla"]] == [
            ("found", "l2=2"), ("published", "l2=3"), ("test", "l2=1")
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gowalla\n", " is not TOML: "),
        ("gowalla = 3", ": gowalla must be a table, got 3$"),
        ("[gowalla.SLIM]\nfound = {l2 = 1.0}", ": gowalla has no row 'SLIM': say one of LightGCN, SGL-ED, "),
        ("[gowalla]\nEASE = 80.0", ": gowalla, EASE must be a table, got 80.0$"),
        (
            "[gowalla.EASE]\nlucky = {l2 = 1.0}",
            ": gowalla, EASE: unknown origin 'lucky': say one of found, ends, published, ",
        ),
        ("[gowalla.EASE]\nfound = 80.0", ": gowalla, EASE, found must be a table, got 80.0$"),
        ("[gowalla.EASE]\nfound = {b = 1.0}", ": gowalla, EASE, found: EASE has no parameter 'b': it has l2$"),
        ("[gowalla.EASE]\nfound = {l2 = -1.0}", ": gowalla, EASE, found: l2 must be a number from 0 up, got -1.0$"),
        (
            "[gowalla.DLAE]\nfound = {l2 = 1.0, dropout = 1.5}",
            ": gowalla, DLAE, found: dropout must be a number from 0 to ",
        ),
        ("[gowalla.EASE]\nfound = {l2 = 'much'}", ": gowalla, EASE, found: l2 must be a number, got 'much'$"),
        ("[gowalla.EASE]\nfound = {engine = 'disk'}", ": gowalla, EASE, found: engine must be a number, got 'disk'$"),
        ("[gowalla.EASE]\nfound = {validation = 3}", ": gowalla, EASE, found, validation must be a table, got 3$"),
        ("[gowalla.EASE]\nfound = {validation = {x = ''}}", ": gowalla, EASE, found: x must be a number, got ''$"),
        ("[gowalla.EASE]\nfound = {source = 3}", ": gowalla, EASE, found: source must be text, got 3$"),
        (
            f"[gowalla.'{WITH_PRIOR}']\nfound = {{l2 = 1.0, prior = 3}}",
            f": gowalla, {re.escape(WITH_PRIOR)}, found: prior must be text, got 3$",
        ),
        (
            f"[gowalla.'{WITH_PRIOR}']\nfound = {{l2 = 1.0, prior = 'highpass'}}",
            f": gowalla, {re.escape(WITH_PRIOR)}, found: there is no prior 'highpass'",
        ),
        (
            f"[gowalla.'{WITH_PRIOR}']\nfound = {{l2 = 1.0}}",
            f": gowalla, {re.escape(WITH_PRIOR)}, found: {re.escape(WITH_PRIOR)} needs prior$",
        ),
        (
            "[gowalla.EASE]\nfound = {l2 = 1.0, prior = 'lowpass'}",
            ": gowalla, EASE, found: EASE has no parameter 'prior'",
        ),
    ],
)
def test_what_is_wrong_is_named(text, told):
    with pytest.raises(DataError, match=f"^a.toml{told}"):
        read_choices(text, "a.toml")


class TestStored:
    def test_the_librarys_file_is_sound(self):
        known = read_choices(files("deql.paper").joinpath("choices.toml").read_text("utf-8"), "choices.toml")
        assert known.keys() <= PRESETS.keys() | {"debian-strong", "debian-weak"}
        for data, several in known.items():
            assert several == stored_choices(data)
            places = [(one.row, one.origin) for one in several]
            assert len(places) == len(set(places))
            for one in several:
                one.model(engine="memory", progress=True)._check_parameters()
                assert one.source
                assert (one.validation.keys() == set(METRICS)) == (one.origin in ("found", "ends"))

    def test_ones_own_come_first(self, tmp_path):
        own = write_small(tmp_path, keys=["gowalla", "elsewhere"])
        assert stored_choices("elsewhere", own) == found()
        mixed, library = stored_choices("gowalla", own), stored_choices("gowalla")
        assert [one for one in mixed if one.origin == "found"] == found()
        assert [one for one in mixed if one.origin != "found"] == [one for one in library if one.origin != "found"]
        assert stored_choices("debian-weak", own) == stored_choices("debian-weak")
        assert stored_choices("debian-weak", tmp_path / "missing.toml") == stored_choices("debian-weak")
        assert stored_choices("nowhere") == []

    def test_ones_own_that_cannot_be_read(self, tmp_path):
        own = tmp_path / "choices.toml"
        own.write_bytes(b"\xff\xfe")
        with pytest.raises(DataError, match=f"^{own} cannot be read: it is not UTF-8 text$"):
            stored_choices("gowalla", own)


def test_models_are_those_of_their_rows():
    kinds = {one.row: one.model(engine="memory") for one in found()}
    assert list(kinds) == list(LINEAR)
    assert {row: type(model).__name__ for row, model in kinds.items()} == {
        row: "DEQL" if row.startswith("DEQL") else row for row in LINEAR
    }
    assert [row for row, model in kinds.items() if getattr(model, "zero_diagonal", False)] == ["DEQL(L2+zero-diag)"]
    assert kinds["DEQL(plain)"].l2 == 0
    for row, model in kinds.items():
        built = SMALL[row] | ({"prior": LowPass(8, 0.2)} if row == WITH_PRIOR else {})
        assert {name: getattr(model, name) for name in SMALL[row]} == built
        assert model.engine == "memory"


class TestBestOfEach:
    def row(self, ndcg, l2=10.0, dropout=0.3, b=0.0, xi=None, user_power=0.0, popularity_power=0.0):
        """A line of a leaderboard."""
        return {"l2": l2, "dropout": dropout, "b": None if xi is not None else b, "xi": xi, "user_power": user_power,
                "popularity_power": popularity_power, "recall@20": 1 - ndcg, "ndcg@20": ndcg}  # fmt: skip

    def test_every_row_of_the_tables(self):
        board = [
            self.row(0.99, dropout=0.0, b=1.0),  # ridge without dropout and with its diagonal: no row of the tables
            self.row(0.98, l2=0.0, b=0.0),  # EDLAE without a ridge: none either
            self.row(0.97, l2=0.0, dropout=0.0),  # and EASE without one is EASE
            self.row(0.20, dropout=0.0, l2=5.0),
            self.row(0.30), self.row(0.31, l2=20.0),
            self.row(0.40, b=1.0), self.row(0.39, b=1.0, l2=20.0),
            self.row(0.45, b=0.5),
            self.row(0.50, l2=0.0, b=0.5), self.row(0.51, l2=0.0, b=1.0),
            self.row(0.60, dropout=0.0, xi=0.1), self.row(0.61, dropout=0.4, xi=0.2),
            self.row(0.90, xi=0.2, user_power=0.5),  # RDLAE with weights: none
            self.row(0.44, b=2.0, user_power=0.5), self.row(0.46, b=2.0, popularity_power=0.3),
            self.row(0.89, dropout=0.0, user_power=0.5),  # EASE with weights: none
            self.row(0.88, l2=0.0, b=1.0, user_power=0.5),  # plain with weights: none
        ]  # fmt: skip
        chosen = {one.row: one for one in best_of_each(board, "by hand")}
        assert list(chosen) == [row for row in LINEAR if row != WITH_PRIOR]
        assert {row: one.parameters for row, one in chosen.items()} == {
            "EASE": {"l2": 0.0}, "DLAE": {"l2": 10.0, "dropout": 0.3}, "EDLAE": {"l2": 20.0, "dropout": 0.3},
            "RLAE": {"l2": 10.0, "xi": 0.1}, "RDLAE": {"l2": 10.0, "dropout": 0.4, "xi": 0.2},
            "DEQL(plain)": {"dropout": 0.3, "b": 1.0}, "DEQL(L2+zero-diag)": {"l2": 20.0, "dropout": 0.3},
            "DEQL(L2)": {"l2": 10.0, "dropout": 0.3, "b": 0.5},
            WEIGHTED: {"l2": 10.0, "dropout": 0.3, "b": 2.0, "user_power": 0.0, "popularity_power": 0.3},
        }  # fmt: skip
        assert chosen["RLAE"].validation == {"recall@20": 0.4, "ndcg@20": 0.6}
        assert {(one.origin, one.source) for one in chosen.values()} == {("found", "by hand")}
        assert read_choices(write_choices({"x": chosen.values()}), "x")["x"] == list(chosen.values())

    def test_weights_may_be_zero_and_b_may_be_one(self):
        (dlae, deql, weighted) = best_of_each([self.row(0.4, b=1.0)], "")
        assert [one.row for one in (dlae, deql, weighted)] == ["DLAE", "DEQL(L2)", WEIGHTED]
        assert (weighted.parameters["user_power"], weighted.parameters["popularity_power"]) == (0.0, 0.0)

    def test_of_equal_ones_the_first_stays(self):
        board = [self.row(0.3, l2=20.0), self.row(0.3, l2=5.0), self.row(0.3, l2=80.0)]
        assert {one.parameters["l2"] for one in best_of_each(board, "")} == {20.0}

    def test_nothing_of_nothing(self):
        assert best_of_each([], "") == []


def test_a_tuning_has_what_is_needed():
    """best_of_each reads the leaderboard of deql.tune."""
    split = deql.split_strong(market())
    space = {"l2": [5, 50], "dropout": [0.0, 0.4], "user_power": 0, "b": [0, 1], "xi": [0.1], "popularity_power": 0}
    table = deql.tune(split, space, prune=False).table
    chosen = {one.row: one for one in best_of_each(table.to_dicts(), "a search")}
    assert chosen.keys() == {"EASE", "DLAE", "EDLAE", "RLAE", "RDLAE", "DEQL(L2+zero-diag)", "DEQL(L2)", WEIGHTED}
    first = table.row(0, named=True)
    assert first["ndcg@20"] == max(one.validation["ndcg@20"] for one in chosen.values())


def test_origins_are_told_in_words():
    assert list(ORIGINS) == ["found", "ends", "published", "test"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("found = {}", "EASE needs l2"),
        ("found = {l2 = 1" + "0" * 400 + "}", "l2 is too large"),
        ("found = {l2 = 5.0, progress = 3}", "EASE has no parameter 'progress': it has l2"),
        ('found = {l2 = 5.0, validation = {"ndcg@20" = inf}}', "ndcg@20 must be a number, got inf"),
    ],
)
def test_what_a_row_cannot_have(entry, told):
    with pytest.raises(DataError, match=f"found: {re.escape(told)}$"):
        read_choices(f"[gowalla.EASE]\n{entry}", "a.toml")


def test_odd_names_of_data_survive():
    text = write_choices({"my data": [Choice("EASE", {"l2": 5.0}, "found")]})
    assert read_choices(text, "a.toml")["my data"][0].words == "l2=5"
