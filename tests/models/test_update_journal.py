"""Entries of a journal of updates: what is asked for comes back."""

import json

import pytest

import deql
from deql.data.changes import Batch
from deql.models.update_journal import JournalEntry


@pytest.mark.parametrize("until", [None, 0.0, -3.0, 1e9])
@pytest.mark.parametrize("new_users", [False, True])
def test_entries_come_back(until, new_users):
    batch = Batch(deql.Interactions.from_pairs(["ann"], ["tea"], [2.0]), forget_users=("bob",))
    entry = JournalEntry(batch, "low rank", 0.0, "before", "after", until, new_users)
    found = JournalEntry.from_record(json.loads(json.dumps(entry.to_record())))
    assert (found.method, found.time, found.before, found.after) == ("low rank", 0.0, "before", "after")
    assert (found.until, found.new_users, found.item_features) == (until, new_users, None)
    assert found.batch.added.matrix.data.tolist() == [2.0]
    assert found.batch.forget_users == ("bob",)
