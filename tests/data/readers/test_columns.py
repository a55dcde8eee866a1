import pytest

from deql.data.readers.columns import ColumnRoles, choose_columns, find_known, is_known_name
from deql.errors import DataError, ParameterError

SPELLINGS = {
    "user": [
        "user",
        "User",
        "USER_ID",
        "userId",
        "user id",
        "uid",
        "Customer ID",
        "customer-id",
        "reviewerID",
        "visitor_id",
        "account",
        "member.id",
        "session_id",
        "clientId",
        "playerID",
    ],
    "item": [
        "item",
        "ItemID",
        "item_id",
        "productId",
        "Product Id",
        "asin",
        "parent_asin",
        "movieId",
        "MOVIE-ID",
        "track_id",
        "songID",
        "artistID",
        "ISBN",
        "business_id",
        "sku",
        "video id",
        "venue_id",
    ],
    "weight": ["weight", "rating", "Overall", "stars", "score", "Play Count", "quantity", "counts"],
    "time": ["timestamp", "time", "Date", "unixReviewTime", "event_time", "created_at", "ts"],
    "title": ["title", "name", "Movie Title", "product_name"],
}


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in SPELLINGS.items() for name in names])
def test_names_in_many_spellings(role, name):
    assert is_known_name(name)
    assert find_known(["x", name, "y"], role) == 1
    assert [other for other in SPELLINGS if find_known([name], other) == 0] == [role]


@pytest.mark.parametrize("name", ["", "17", "x", "genre", "latitude", "helpful", "userage", "tags"])
def test_names_that_say_nothing(name):
    assert not is_known_name(name)


def test_the_best_known_name_wins():
    assert find_known(["session", "user_id"], "user") == 1
    assert find_known(["asin", "parent_asin"], "item") == 1
    assert find_known(["date", "timestamp"], "time") == 1
    assert find_known(["count", "rating"], "weight") == 1
    assert find_known(["user", "user"], "user") == 0


def choose(names, user=None, item=None, weight=None, time=None, header=True):
    roles = choose_columns(names, "t.csv", user, item, weight, time, header)
    return roles.user, roles.item, roles.weight, roles.time, roles.guessed


def test_by_name_and_number():
    names = ["item", "user", "stars", "when"]
    assert choose(names) == (1, 0, None, None, True)
    assert choose(names, "item", "user") == (0, 1, None, None, False)
    assert choose(names, 4, 3, 2, 1) == (3, 2, 1, 0, False)
    assert choose(names, "user", "item", True) == (1, 0, 2, None, True)
    assert choose(names, "user", "item", False, False) == (1, 0, None, None, False)
    assert choose(names, True, "when")[:2] == (1, 3)


def test_by_place():
    assert choose(["who", "what"]) == (0, 1, None, None, True)
    assert choose(["1", "2", "3", "4"], header=False) == (0, 1, None, None, True)
    assert choose(["1", "2", "3", "4"], weight=True, time=True, header=False) == (0, 1, 2, 3, True)
    assert choose(["x", "user", "item"], header=True)[:2] == (1, 2)


def test_recbole_names_with_their_types():
    assert choose(["user_id", "item_id"], "user_id:token", "item_id:token") == (0, 1, None, None, False)


@pytest.mark.parametrize(
    ("names", "choices", "message"),
    [
        (["a", "b", "c"], {}, "t.csv has no column that looks like the user's: say user=… with one of 'a', 'b', 'c'"),
        (["user", "b", "c"], {}, "no column that looks like the item's: say item=…"),
        (["user", "item"], {"weight": True}, "no column that looks like the weight's: say weight=…"),
        (["user", "item"], {"time": True}, "no column that looks like the time's: say time=…"),
        (["user", "item"], {"user": "who"}, "t.csv has no column 'who': say user=… with one of 'user', 'item'"),
        (["user", "item"], {"user": 3}, "t.csv has 2 columns, so user=3 is none of them"),
        (["user", "item"], {"user": -1}, "so user=-1 is none of them"),
        (
            ["user", "item"],
            {"user": "item"},
            "user and item of t.csv are the same column, 'item': say user=… and item=…",
        ),
        (["user", "item", "n"], {"weight": 1}, "user and weight of t.csv are the same column, 'user'"),
        (["user", "item", "n"], {"time": "item"}, "item and time of t.csv are the same column, 'item'"),
        ([f"c{i}" for i in range(40)], {}, "'c11' and 28 more"),
    ],
)
def test_no_such_column(names, choices, message):
    with pytest.raises(DataError) as caught:
        choose(names, **choices)
    assert message in str(caught.value)


@pytest.mark.parametrize("choice", [1.5, b"user", ["user"]])
def test_no_column_at_all(choice):
    with pytest.raises(ParameterError, match="user must be the name or the number of a column"):
        choose(["user", "item"], choice)


def test_words_for_people():
    assert ColumnRoles(0, 1, 2, 3, True).describe(["1", "2", "3", "4"]) == (
        "user = column 1, item = column 2, weight = column 3, time = column 4"
    )
    assert (
        ColumnRoles(1, 0, None, 3, True).describe(["a", "b", "c", "d"]) == "user = b, item = a, time = d; not used: c"
    )
