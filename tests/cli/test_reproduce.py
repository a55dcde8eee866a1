"""``deql reproduce`` as people type it, nonsense included."""

import pytest

from deql._system.measure import Measurement
from deql.cli import run
from deql.io.journal import Journal
from deql.models.base import Recommender
from deql.paper.document import Document
from deql.paper.hyperparameters import own_choices
from deql.paper.registry import TABLES
from deql.tuning.space import Space
from tests.cli.test_cli import answer, refusal
from tests.paper.common import SMALL, found, use_small, write_checkins, write_small

pytest.importorskip("matplotlib", reason="documents need matplotlib")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, small bundled data, and a folder ``out`` with choices for them."""
    use_small(monkeypatch)
    monkeypatch.delenv("DEQL_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "deql.paper.cost.fit_in_subprocess", lambda *_: Measurement(2.0, 3.0, 300.0, 200.0, {"engine": "memory"})
    )
    (tmp_path / "out").mkdir()
    write_small(tmp_path / "out")
    return tmp_path


def names(folder):
    return {path.name for path in folder.iterdir()}


class TestList:
    def test_what_there_is(self, capsys, place):
        assert run(["reproduce"]) == 0
        out = capsys.readouterr().out
        for name, table in TABLES.items():
            assert name in out
            assert table.label.split(", ")[0][:10] in out
        told = "games (Amazon review data, Video Games) needs --data DIR, with its files in DIR/games."
        assert f"Not there: {told}" in out
        assert names(place) == {"out"}

    def test_as_json_and_with_data(self, capsys, place):
        write_checkins(place / "data" / "gowalla-1")
        facts = answer(capsys, "reproduce", "--data", place / "data")
        data = {table["name"]: table["data"] for table in facts["tables"]}
        assert list(data) == list(TABLES)
        assert data["strong"] == data["significance"] == ["gowalla-1", "debian"]
        assert data["weak"] == ["debian"]
        assert {one["name"] for one in facts["absent"]} == {
            "games", "beauty", "ml20m", "netflix", "msd", "amazon-book", "yelp2018", "gowalla"
        }  # fmt: skip

    def test_of_one_data_set(self, capsys, place, monkeypatch):
        write_checkins(place / "data" / "gowalla-1")
        monkeypatch.setenv("DEQL_DATA", str(place / "data"))
        facts = answer(capsys, "reproduce", "--only", "gowalla-1")
        assert {table["name"]: table["data"] for table in facts["tables"]}["weak"] == []
        assert facts["absent"] == []


@pytest.mark.parametrize("name", [name for name in TABLES if name != "training"])  # networks: tests/paper
def test_every_table_of_the_bundled_data(capsys, place, name):
    facts = answer(capsys, "reproduce", name, "--only", "debian", "--out", "out")[name]
    assert facts["title"] == f"{name}: {TABLES[name].title}"
    assert facts["lead"]
    assert any(section["tables"] for section in facts["sections"])
    assert {f"{name}.md", f"{name}.html", f"{name}-1.svg", "measured.jsonl"} <= names(place / "out")
    text = (place / "out" / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: ")
    assert f"- Command: deql reproduce {name} --only debian\n" in text
    assert "No hyper-parameters" not in text
    assert "Not there" not in text
    assert not [one for one in names(place / "out") if one.endswith((".tmp", ".part"))]


def test_in_the_terminal(capsys, place, monkeypatch):
    monkeypatch.setattr("deql.paper.accuracy._figures", lambda *_: [])
    assert run(["reproduce", "strong", "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert "DEQL(L2) + weights" in out
    assert "chosen on validation data" in out
    assert "when (UTC)" not in out
    assert "Not there" in out
    assert "deql: Debian (bundled): fitting EASE l2=5, RLAE l2=5 xi=0.2\n" in err
    assert "deql: wrote out/strong.md\ndeql: wrote out/strong.html\n" in err


def test_all_of_them(capsys, place, monkeypatch):
    """Those tables that a data set belongs to."""
    monkeypatch.setattr("deql.cli.reproduce.make", lambda name, *_: Document(name, "made", {}))
    facts = answer(capsys, "reproduce", "all", "--only", "debian-weak", "-o", "out")
    assert list(facts) == [name for name, table in TABLES.items() if "weak" in table.protocols]
    assert {f"{name}.html" for name in facts} <= names(place / "out")
    assert "strong.md" not in names(place / "out")


def test_own_data(capsys, place):
    write_checkins(place / "data" / "gowalla-1")
    write_small(place / "out", keys=["gowalla-1"])
    facts = answer(capsys, "reproduce", "strong", "--data", "data", "--only", "gowalla-1,games", "-o", "out")["strong"]
    headings = [section["heading"] for section in facts["sections"]]
    assert headings == ["Gowalla-1", "Not there", "Log"]
    first = facts["sections"][0]["tables"][0]
    assert first["header"][2:5] == ["R@20 paper", "R@20 here", "difference"]
    assert first["rows"][0][2] == "0.2230"


@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("datasets", "training")])
def test_no_choices_for_a_data_set(capsys, place, monkeypatch, name):
    monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda *_: [])
    answer(capsys, "reproduce", name, "--only", "debian", "-o", "out")
    text = (place / "out" / f"{name}.md").read_text(encoding="utf-8")
    key = f"debian-{TABLES[name].protocols[0]}"
    assert f" are known for {key}: deql reproduce choices --only {key} searches for them.\n" in text


class TestChoices:
    @pytest.fixture
    def few(self, monkeypatch):
        """A few inverses instead of hundreds."""
        space = Space(l2=(2.0, 20.0), dropout=(0.0, 0.5), b=(0.0, 0.5, 1.0), xi=(0.1,))
        monkeypatch.setattr("deql.paper.hyperparameter_search.FAMILY", space)
        monkeypatch.setattr("deql.paper.hyperparameter_search.USER_POWERS", (0.0, 0.5))

    def test_are_searched_kept_and_used(self, capsys, place, few):
        facts = answer(capsys, "reproduce", "choices", "--only", "debian-weak", "-o", "out")
        own = own_choices(place / "out" / "choices.toml")
        assert own["debian-strong"] == found()
        assert facts == {"debian-weak": {one.row: one.parameters for one in own["debian-weak"]}}
        assert facts["debian-weak"]["EASE"]["l2"] in (2.0, 20.0)
        assert "16 models" in own["debian-weak"][0].source
        table = answer(capsys, "reproduce", "weak", "--only", "debian", "-o", "out")["weak"]
        rows = {row[0]: row[1] for row in table["sections"][0]["tables"][0]["rows"]}
        assert rows == {one.row: one.words for one in own["debian-weak"]}

    def test_in_the_terminal(self, capsys, place, few):
        assert run(["reproduce", "choices", "--only", "debian-weak,games", "-o", "new"]) == 0
        out, err = capsys.readouterr()
        assert "DEQL(L2+zero-diag)" in out
        assert "deql: searching on debian-weak\n" in err
        assert "deql: not there: games (Amazon" in err
        journals = {f"debian-weak-{part}.tuning.jsonl" for part in
                    ("family", "weights-0-around-20-0.5", "weights-0.5-around-20-0.5")}  # fmt: skip
        assert names(place / "new") == {"choices.toml", "measured.jsonl"} | journals


class TestNonsense:
    @pytest.mark.parametrize(
        ("typed", "told"),
        [
            (["storng"], "there is no table 'storng' (did you mean strong?): say datasets, strong, weak, "),
            (["strong", "--only", "gowala"], "unknown data set 'gowala': say one of ml20m, "),
            (
                ["strong", "--data", "nowhere"],
                "there is no folder nowhere (--data or $DEQL_DATA): name the one that has a folder for each data set",
            ),
            (["--data", "nowhere"], "there is no folder nowhere"),
            (["weak", "--only", "games"], "weak has no data: it is not about games"),
            (
                ["strong", "--only", "games"],
                "strong has no data: games (Amazon review data, Video Games) needs --data DIR",
            ),
            (["all", "--only", "games,msd"], "all has no data: games "),
            (["choices", "--only", "msd"], "choices has no data: msd "),
            (["strong", "--engine", "abacus"], "abacus"),
            (["strong", "--threads", "0"], "the number of threads must be a whole number from 1"),
        ],
    )
    def test_is_refused_before_anything_is_written(self, capsys, place, typed, told):
        assert told in refusal(capsys, "reproduce", *typed, "--out", "fresh")
        assert names(place) == {"out"}

    def test_a_file_in_the_way(self, capsys, place):
        (place / "file").write_text("mine")
        assert "file is a file: name a folder to write into" in refusal(capsys, "reproduce", "strong", "-o", "file")
        assert "folder file/out cannot be made" in refusal(capsys, "reproduce", "strong", "-o", "file/out")
        assert (place / "file").read_text() == "mine"

    @pytest.mark.parametrize(
        "text", ["[debian-strong\n", "[debian-strong.SLIM]\n", "[debian-strong.EASE]\nfound = {l2 = -1}"]
    )
    def test_choices_that_cannot_be_read(self, capsys, place, text):
        (place / "out" / "choices.toml").write_text(text)
        for name in ("strong", "choices"):
            told = last_line(capsys, "reproduce", name, "--only", "debian", "-o", "out")
            assert told.startswith("deql: error: out/choices.toml")
        assert names(place / "out") == {"choices.toml", "measured.jsonl"}
        assert (place / "out" / "choices.toml").read_text() == text

    def test_a_journal_of_another_kind(self, capsys, place):
        Journal(place / "out" / "measured.jsonl", {"metric": "ndcg@20"}).close()
        before = (place / "out" / "measured.jsonl").read_bytes()
        assert "out/measured.jsonl is not a journal of a reproduction" in refusal(
            capsys, "reproduce", "strong", "-o", "out"
        )
        assert (place / "out" / "measured.jsonl").read_bytes() == before
        (place / "out" / "measured.jsonl").write_text("my diary\n")
        assert "is not a journal" in refusal(capsys, "reproduce", "strong", "-o", "out")
        assert names(place / "out") == {"choices.toml", "measured.jsonl"}


def last_line(capsys, *arguments):
    """The error after whatever was told of the work; nothing on standard output."""
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err.strip().splitlines()[-1]


def test_an_interrupted_run_goes_on(capsys, place, monkeypatch):
    monkeypatch.setattr("deql.paper.accuracy._figures", lambda *_: [])  # they take longer than the fits
    command = ["reproduce", "strong", "--only", "debian", "-o"]
    whole = answer(capsys, *command, "out")["strong"]["sections"][0]
    fit, fits = Recommender.fit, []

    def interrupted(model, data):
        fits.append(model)
        if len(fits) == 4:
            raise KeyboardInterrupt
        return fit(model, data)

    monkeypatch.setattr(Recommender, "fit", interrupted)
    (place / "later").mkdir()
    write_small(place / "later")
    assert run([*command, "later"]) == 130
    assert capsys.readouterr().err.endswith("deql: interrupted\n")
    assert names(place / "later") == {"choices.toml", "measured.jsonl"}
    assert answer(capsys, *command, "later")["strong"]["sections"][0] == whole
    inverses = {(model._ridge, model._dropped, model.user_power) for model in fits}
    assert len(fits) == len(inverses) + 1 < len(SMALL) + 1
    before = (place / "later" / "strong.md").read_bytes()
    answer(capsys, *command, "later")
    assert len(fits) == len(inverses) + 1
    assert (place / "later" / "strong.md").read_bytes() == before
