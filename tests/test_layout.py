"""Tests lie where what they test lies."""

from pathlib import Path

import pytest

import deql

TESTS, PACKAGE = Path(__file__).parent, Path(deql.__file__).parent
FOLDERS = sorted({path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_of_tests_is_one_of_the_package(folder):
    assert (PACKAGE / folder / "__init__.py").is_file()
