"""Tests lie where what they test lies."""

from pathlib import Path

import pytest

import deql

TESTS, PACKAGE = Path(__file__).parent, Path(deql.__file__).parent
ACROSS = {Path("faults"), Path("fuzz")}
"""What is done to all of it at once: calls that fail, and input that is damaged."""

FOLDERS = sorted({path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_of_tests_is_one_of_the_package(folder):
    assert folder in ACROSS or (PACKAGE / folder / "__init__.py").is_file()
