"""A split at one moment: nothing is learned that happened after anything that is to be found."""

from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import deql
from deql import DataError, Interactions, ParameterError
from tests.data.reading import moments, put
from tests.split.common import cells, parts, tables


@given(tables(min_users=4), st.floats(0.05, 0.9), st.sampled_from([0, 0.1, 0.4]), st.booleans())
def test_no_leak_and_nothing_lost(data, share, validation, by_moment):
    asked = {"after": float(np.quantile(data.times, 1 - share))} if by_moment else {"test": share}
    try:
        split = deql.split_time(data, validation=validation, **asked)
    except DataError:
        assume(False)
    when = moments(data)
    cut = min(when[user, item] for user, item, _ in cells(split.test.held_out))
    begin = asked.get("after", cut)
    if not by_moment:
        at_least = max(1, round(share * data.n_interactions))
        begin = sorted(when.values())[-at_least]
    assert cut >= begin
    known = {item for _, item, _ in cells(split.train)}
    later = {pair for pair, moment in when.items() if moment >= begin}
    earlier = {pair for pair, moment in when.items() if moment < begin and pair[1] in known}
    users = {user for user, _ in earlier} & {user for user, item in later if item in known}
    found = {(user, item) for user, item, _ in cells(split.test.held_out)}
    assert found == {(user, item) for user, item in later if user in users and item in known}
    assert {(u, i) for u, i, _ in cells(split.test.seen)} == {pair for pair in earlier if pair[0] in users}
    learned = {(user, item): when[user, item] for user, item, _ in cells(split.train)}
    assert split.train.items.tolist() == [item for item in data.items.tolist() if item in known]
    assert set(split.train.users.tolist()) == {user for user, _ in learned}
    if validation:
        judged = [when[user, item] for user, item, _ in cells(split.validation.held_out)]
        assert all(max(learned.values()) < moment < begin for moment in judged)
        expected = {pair for pair in learned if pair[0] in set(split.validation.seen.users.tolist())}
        assert {(user, item) for user, item, _ in cells(split.validation.seen)} == expected
    else:
        assert split.validation is None
        assert set(learned) == {pair for pair, moment in when.items() if moment < begin}
    assert split.dropped == {
        "items": data.n_items - len(known),
        "interactions": sum(item not in known for _, item in when),
        "users": len({user for user, _ in later} - users),
    }
    for part in parts(split):
        assert moments(part) == {pair: when[pair] for pair in moments(part)}


def market():
    data = Interactions.from_pairs(list("aaabbbc"), ["egg", "jam", "tea", "egg", "jam", "rum", "tea"])
    return replace(data, times=np.array([1.0, 5.0, 2.0, 2.0, 1.0, 6.0, 6.0]))


def test_by_hand():
    split = deql.split_time(market(), after=5, validation=0)
    assert split.train.users.tolist() == ["a", "b"]
    assert split.test.held_out.history("a") == ["jam"]
    # b finds only what nobody had before, c was not there.
    assert split.dropped == {"items": 1, "interactions": 1, "users": 2}
    assert split.describe() == (
        "time split, after=5, validation=0: 2 users × 3 items to train on, 1 user to test on; "
        "dropped: 1 item, 1 interaction, 2 users"
    )


def test_moments_as_dates():
    data = replace(market(), times=market().times * 86400)
    expected = cells(deql.split_time(data, after=5 * 86400, validation=0).test.held_out)
    for after in ("1970-01-06", "1970-01-06 00:00", "1970-01-06T01:00+01:00", date(1970, 1, 6), datetime(1970, 1, 6),
                  datetime(1970, 1, 6, tzinfo=UTC), "432000"):  # fmt: skip
        split = deql.split_time(data, after=after, validation=0)
        assert split.parameters == {"after": 432000.0, "validation": 0}
        assert cells(split.test.held_out) == expected


def test_ties_stay_together():
    data = replace(market(), times=np.array([3.0, 1.0, 3.0, 1.0, 3.0, 3.0, 1.0]))
    split = deql.split_time(data, test=0.15, validation=0)  # one of seven, and three of the same time
    assert moments(split.test.held_out) == {("a", "egg"): 3.0, ("a", "tea"): 3.0, ("b", "jam"): 3.0}


def test_saved_and_loaded(tmp_path):
    split = deql.split_time(market(), after=5, validation=0.3)
    split.save(tmp_path / "a.split")
    again = deql.load_split(tmp_path / "a.split")
    assert (again.protocol, again.parameters) == ("time", {"after": 5.0, "validation": 0.3})
    assert [cells(part) for part in parts(again)] == [cells(part) for part in parts(split)]
    assert again.test.held_out.times.tolist() == split.test.held_out.times.tolist()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"test": 0.2, "after": 5}, ParameterError, "test and after both say where the test begins"),
        ({"test": 1.5}, ParameterError, "test must be a share between 0 and 1, got 1.5"),
        ({"validation": 2}, ParameterError, "validation must be a share between 0 and 1"),
        ({"after": "yesterday"}, ParameterError, "after must be a time as the data have it, or a date like 2015-03-04"),
        ({"after": "nan"}, ParameterError, "after must be a time"),
        ({"after": True}, ParameterError, "after must be a time"),
        ({"after": 10**400}, ParameterError, "after must be a time"),
        ({"after": 100}, DataError, "nothing happened from the moment 100, where the test begins: .* are 1 to 6"),
        ({"after": 1}, DataError, "nothing happened before the moment 1,"),
        ({"after": 2, "validation": 0.5}, DataError, "nothing is left to train on"),
        ({"after": 6, "validation": 0}, DataError, "cannot be split|nobody has something"),
    ],
)
def test_what_cannot_be_split(options, error, message):
    with pytest.raises(error, match=message):
        deql.split_time(market(), **options)


def test_of_a_frame_finds_its_times():
    frame = market().to_frame("pandas")
    assert deql.split_time(frame, after=5).describe() == deql.split_time(market(), after=5).describe()


def test_needs_times():
    with pytest.raises(DataError, match="a time split needs to know when things happened: say time=…"):
        deql.split_time(replace(market(), times=None))
    with pytest.raises(DataError, match="a time split needs a time for every interaction"):
        deql.split_time(replace(market(), times=np.array([1.0, np.nan, 1, 1, 1, 1, 1])))


def test_of_a_frame_finds_the_times():
    data = market()
    frame = data.to_frame().rename({"time": "timestamp"})
    asked = {"after": 5, "validation": 0}
    split, expected = (deql.split_time(one, **asked) for one in (frame, data))
    assert split.describe() == expected.describe()
    assert split.train.times.tolist() == expected.train.times.tolist()
    models = {"EASE": deql.EASE(l2=1.0), "popularity": deql.Popularity()}
    assert deql.compare(models, frame, protocol="time", **asked).protocol == "time"


def test_by_the_command_line(tmp_path, capsys):
    from deql.cli import run

    rows = "".join(
        f"u{user},i{item},2015-0{1 + (user + item) % 9}-01\n" for user in range(9) for item in range(0, 9, 2)
    )
    path = put(tmp_path / "t.csv", f"user,item,date\n{rows}")
    out = tmp_path / "t.split"
    command = ["data", "split", str(path), "--protocol", "time", "-o", str(out)]
    assert run([*command, "--after", "2015-07-01", "--validation", "0"]) == 0
    expected = deql.split_time(
        deql.read_interactions(path, "user", "item", time="date"), after="2015-07-01", validation=0
    )
    assert cells(deql.load_split(out).test.held_out) == cells(expected.test.held_out)
    assert run([*command, "--test", "0.3"]) == 0
    assert deql.load_split(out).parameters == {"test": 0.3, "validation": 0.1}
    assert run([*command, "--held-out", "0.3"]) == 2
    assert "--held-out does not belong to the protocol time" in capsys.readouterr().err
    assert run(["evaluate", str(path), "popularity", "ease:l2=1", "--protocol", "time", "--json"]) == 0
    assert run(["compare", str(path), "popularity", "ease:l2=1", "--protocol", "time"]) == 0
    assert "time split" in capsys.readouterr().out
