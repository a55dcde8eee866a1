"""Damaged input of every kind, the same each time: a sentence, or something that answers rightly.

`python -m tests.fuzz --minutes 30` goes on from here with other cases (CONTRIBUTING.md).
"""

from __future__ import annotations

import shutil
import sys
from random import Random

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

if sys.platform != "linux":
    pytest.skip("memory is limited and watched on Linux only", allow_module_level=True)

from tests.fuzz.folders import FOLDERS
from tests.fuzz.runner import Session, judge
from tests.fuzz.targets import TARGETS, make_case, seeds, use
from tests.fuzz.write_corpus import CORPUS

pytestmark = pytest.mark.slow

SHORT = 150
"""Cases of each target, which take a second or two."""


@pytest.mark.parametrize("target", TARGETS)
def test_damage_does_no_harm(target):
    session = Session(target, seed=0, last=SHORT, seconds=120)
    found = [f"{one.name}: {one.what}\n{one.trace}" for one in session.run()]
    assert not found, "\n".join(found)
    assert session.tried == SHORT


@pytest.mark.parametrize("path", sorted((CORPUS / "found").iterdir()), ids=lambda path: path.name)
def test_what_once_did_harm_does_so_no_more(path, tmp_path):
    """Each was found by fuzzing; its name begins with its target."""
    copy = shutil.copy(path, tmp_path / path.name.partition("-")[2])
    for number in range(10):  # however it is used
        assert judge(path.name.partition("-")[0], copy, Random(number)) is None


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in ("tiles", *FOLDERS)])
def test_what_is_whole_is_used(target, tmp_path):
    """Else fuzzing would only ever see the first check that fails."""
    for path in seeds(target):
        use(target, shutil.copy(path, tmp_path / path.name), Random(1))


@pytest.mark.parametrize("target", FOLDERS)
def test_a_folder_that_is_whole_is_used(target, tmp_path):
    copies = [shutil.copy(path, tmp_path / path.name) for path in seeds(target)]
    for number in range(5):
        use(target, copies[0], Random(number))


def test_the_same_case_again(tmp_path):
    for target in TARGETS:
        cases = []
        for folder in (tmp_path / f"{target}-1", tmp_path / f"{target}-2"):
            folder.mkdir()
            made = make_case(target, Random(f"{target}/5/7"), folder)
            cases.append((made.name, {path.name: path.read_bytes() for path in folder.iterdir()}))
        assert cases[0] == cases[1]
