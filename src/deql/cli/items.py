"""Items as people type and read them: by id, or by title where the model has titles."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from deql.cli.output import say
from deql.errors import UnknownItemError
from deql.ranking.item_lookup import find_column, suggest_items

__all__ = [
    "find_item", "find_items", "history_facts", "item_facts", "item_rows", "parse_history", "parse_items",
    "scored_items", "title_of",
]  # fmt: skip


def title_of(model: Any, item: Any) -> str:
    """What to show for an item."""
    return str(item) if model.titles_ is None else str(model.titles_[model._item_index[item]])


def scored_items(model: Any, ids: NDArray[Any], scores: NDArray[Any]) -> list[dict[str, Any]]:
    """The items of one list, with titles if there are any; places that stayed empty are left out."""
    return [
        item_facts(model, item) | {"score": float(score)}
        for item, score in zip(ids.tolist(), scores, strict=True)
        if score == score
    ]


def item_facts(model: Any, item: Any) -> dict[str, Any]:
    """An item for machines: its id, and its title if it has one."""
    return {"item": item} if model.titles_ is None else {"item": item, "title": title_of(model, item)}


def item_rows(scored: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns and rows of a table of them."""
    if scored and "title" in scored[0]:
        return ["item", "id", "score"], [(one["title"], str(one["item"]), f"{one['score']:.4f}") for one in scored]
    return ["item", "score"], [(str(one["item"]), f"{one['score']:.4f}") for one in scored]


def find_item(model: Any, text: str) -> Any:
    """The id of an item that was typed as id or title."""
    item = _find(model, text)
    if item is None:
        if not _takes_words(model) and _whole_number(text) is None:
            raise UnknownItemError(f"this model's items are whole numbers, got {text!r}")
        raise UnknownItemError(
            f"the model does not know the item {text!r}{suggest_items(text, model.items_, model.titles_)}"
        )
    return item


def find_items(model: Any, texts: list[str] | None) -> list[Any] | None:
    """Ids of several items, None if there are none."""
    return None if not texts else [find_item(model, text) for text in texts]


def parse_items(model: Any, texts: list[str] | None, strict: bool) -> list[Any] | None:
    """The same, but unknown ones stay, unless ``strict``, to be counted by the model, with a hint here."""
    if not texts or strict:
        return find_items(model, texts)
    return [item if (item := _find(model, text)) is not None else _unknown(model, text, strict) for text in texts]


def parse_history(model: Any, texts: list[str], strict: bool) -> list[Any] | dict[Any, float]:
    """A history's ids, with weights if any was typed, ``tea=2.5``; unknown ones stay, as candidates do.

    What is an id or a title as it was typed is no item with a weight, and the weights of one item add up.
    """
    found = [_find_weighted(model, text, strict) for text in texts]
    if all(weight is None for _, weight in found):
        return [item for item, _ in found]
    history: dict[Any, float] = {}
    for item, weight in found:
        history[item] = history.get(item, 0.0) + (1.0 if weight is None else weight)
    return history


def history_facts(history: list[Any] | dict[Any, float]) -> list[Any]:
    """A history for machines: ids, or ids with their weights.

    Examples
    --------
    >>> history_facts(["tea"]), history_facts({"tea": 2.5})
    (['tea'], [{'item': 'tea', 'weight': 2.5}])
    """
    if isinstance(history, dict):
        return [{"item": item, "weight": weight} for item, weight in history.items()]
    return history


def _find_weighted(model: Any, text: str, strict: bool) -> tuple[Any, float | None]:
    name, weight = text, None
    item = _find(model, text)
    if item is None and "=" in text:
        before, _, after = text.rpartition("=")
        try:
            weight = float(after)
        except ValueError:
            pass  # all of it is the item, then
        else:
            name, item = before, _find(model, before)
    return (_unknown(model, name, strict) if item is None else item), weight


def _find(model: Any, text: str) -> Any:
    """The id that was typed, or that of the only item with this title, in capitals or not."""
    number = None if model.items_.dtype == object else _whole_number(text)
    if number in model._item_index:
        return number
    column = find_column(text, model._item_index, model._title_index)
    return None if column is None else model.items_[[column]].tolist()[0]


def _unknown(model: Any, text: str, strict: bool) -> Any:
    """What stands for an unknown item; for people who may have mistyped it, what it perhaps should be."""
    hint = suggest_items(text, model.items_, model.titles_)
    if hint and not strict:
        say(f"note: {text!r} is not an item of this model{hint}")
    if _takes_words(model):
        return text
    number = _whole_number(text)
    return find_item(model, text) if number is None else number  # which says what is wrong with it


def _takes_words(model: Any) -> bool:
    return model.items_.dtype == object or model.titles_ is not None


def _whole_number(text: str) -> int | None:
    """The number that was typed; None for words, and for digits without end."""
    try:
        return int(text)
    except ValueError:
        return None
