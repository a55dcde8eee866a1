"""Numbers of thousands of digits and JSON nested without end: a sentence, wherever they stand."""

import json

import numpy as np
import pytest
import safetensors.numpy

import deql
from tests.cli.test_cli import refusal

DIGITS, NESTED = "9" * 5000, "[" * 100_000
TABLES = {
    "digits.jsonl": f'{{"user": 1, "item": 2}}\n{{"user": 2, "item": {DIGITS}}}\n',
    "nested.jsonl": f'{{"user": 1, "item": 2, "x": {NESTED}\n',
    "late.jsonl": '{"user": 1, "item": 2}\n' * 150_000 + f'{{"user": 1, "item": 2, "x": {NESTED}\n',
    "closed.jsonl": f'{{"user": 1, "item": 2}}\n{{"user": 1, "item": 3, "x": {NESTED}{"]" * 100_000}}}\n',
    "weight.csv": f"user,item,weight\n1,2,3\n2,2,{DIGITS}\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endless")
    rows = "".join(f"{user},{item}\n" for user in range(30) for item in (1, 2, 3 + user % 4, 8 + user % 3))
    (folder / "goods.csv").write_text("user,item\n" + rows)
    deql.Popularity().fit(deql.read_interactions(folder / "goods.csv", "user", "item")).save(folder / "m.deql")
    for name, text in TABLES.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_tables(capsys, place, name):
    said = refusal(capsys, "data", "info", place / name, *(["--weight", "weight"] if name == "weight.csv" else []))
    assert ", line " in said
    assert "sys.set_int" not in said
    assert len(said) < 500


def test_titles_and_journals(capsys, place):
    (place / "titles.jsonl").write_text(f'{{"item": 1, "title": {NESTED}\n')
    assert "JSON" in refusal(
        capsys, "fit", place / "goods.csv", "--items", place / "titles.jsonl", "-o", place / "a.deql"
    )
    for text in (NESTED, f'{{"deql": "tuning", "version": {DIGITS}, "search": {{}}}}'):
        (place / "j.jsonl").write_text(f"{text}\n")
        said = refusal(capsys, "tune", place / "goods.csv", "-o", place / "a.deql", "--journal", place / "j.jsonl")
        assert "is not a journal" in said


@pytest.mark.parametrize(
    "text", [NESTED, f'{{"split": {DIGITS}}}', json.dumps({"format_version": "1", "split": NESTED})]
)
@pytest.mark.parametrize("key", ["deql-model", "deql-split"])
def test_model_and_split_files(capsys, place, key, text):
    path = place / "a.bin"
    safetensors.numpy.save_file({"a": np.ones(3, np.float32)}, path, metadata={key: text})
    command = ["similar", path, "1"] if key == "deql-model" else ["fit", path, "-o", place / "b.deql"]
    refusal(capsys, *command)


@pytest.mark.parametrize(
    "command",
    [
        ["recommend", "m.deql", DIGITS],
        ["recommend", "m.deql", "²"],
        ["recommend", "m.deql", "1", "--exclude", DIGITS],
        ["recommend", "m.deql", "1", "-k", DIGITS],
        ["recommend", "m.deql", "1", "-k", DIGITS[:400]],
        ["similar", "m.deql", DIGITS],
        ["explain", "m.deql", "1", DIGITS],
        ["data", "info", "goods.csv", "--user", DIGITS],
        ["data", "split", "goods.csv", "-o", "a.split", "--seed", DIGITS[:400]],
        ["fit", "goods.csv", "-o", "a.deql", "--memory", DIGITS],
        ["fit", "goods.csv", "-o", "a.deql", "-m", f"slim:max_sweeps={DIGITS}"],
        ["fit", "goods.csv", "-o", "a.deql", "--l2", DIGITS],
        ["evaluate", "goods.csv", "ease", "--metrics", f"ndcg@{DIGITS}"],
        ["tune", "goods.csv", "-o", "a.deql", "--budget", DIGITS],
    ],
    ids=lambda command: " ".join(word[:12] for word in command),
)
def test_what_is_typed(capsys, place, monkeypatch, command):
    monkeypatch.chdir(place)
    assert len(refusal(capsys, *command)) < 500
