"""Published splits, as LightGCN writes them."""

from __future__ import annotations

import deql


def write_published(folder, matrix):
    """A weak split of the matrix as train.txt and test.txt: on each line a user and then its items."""
    folder.mkdir()
    split = deql.split_weak(deql.Interactions.from_csr(matrix), validation=0)
    for name, part in (("train", split.train), ("test", split.test.held_out)):
        lines = [" ".join(map(str, [user, *part.history(user)])) for user in part.users.tolist()]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
