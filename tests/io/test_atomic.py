import pytest

from deql.errors import DataError
from deql.io.atomic import replace_file, write_text, write_whole


def test_what_fails_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old é")
    assert path.read_text(encoding="utf-8") == "old é"

    def half(place):
        place.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, half)
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text(encoding="utf-8") == "old é"


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path / "none" / "a.txt", "x")
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path, "x")


def test_text_that_is_not_unicode_is_still_written(tmp_path):
    write_text(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "a?b"


def test_a_file_that_a_killed_process_left_is_written_over(tmp_path):
    (tmp_path / "a.new").write_text("what was cut short, and is longer than what comes")
    replace_file(tmp_path / "a", lambda place: place.write_text(f"by way of {place.name}"), "a.new")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "by way of a.new"
