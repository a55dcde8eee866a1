"""Items as people type and read them: by id, or by title where the model has titles."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from deql.cli.output import did_you_mean, say
from deql.errors import UnknownItemError, name_some

__all__ = ["find_item", "find_items", "item_facts", "item_rows", "parse_history", "scored_items", "title_of"]


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
        if model.items_.dtype != object and model.titles_ is None and not text.lstrip("-").isdigit():
            raise UnknownItemError(f"this model's items are whole numbers, got {text!r}")
        raise UnknownItemError(f"the model does not know the item {text!r}{_suggestion(model, text)}")
    return item


def find_items(model: Any, texts: list[str] | None) -> list[Any] | None:
    """Ids of several items, None if there are none."""
    return None if not texts else [find_item(model, text) for text in texts]


def parse_history(model: Any, texts: list[str], strict: bool) -> list[Any]:
    """A history's ids; unknown ones stay, to be counted or refused by the model, with a hint here."""
    items = []
    for text in texts:
        item = _find(model, text)
        if item is None:
            if model.items_.dtype != object and model.titles_ is None:
                item = _whole_number(text)
                if item is None:
                    item = find_item(model, text)  # which says what is wrong with it
            else:
                item = text
            hint = _suggestion(model, text)
            if hint and not strict:
                say(f"note: {text!r} is not an item of this model{hint}")
        items.append(item)
    return items


def _find(model: Any, text: str) -> Any:
    """The id that was typed, or that of the only item with this title, in capitals or not."""
    item = text if model.items_.dtype == object else _whole_number(text)
    if item in model._item_index:
        return item
    if model.titles_ is None:
        return None
    wanted = text.casefold()
    same = [
        item for item, title in zip(model.items_.tolist(), model.titles_, strict=True) if title.casefold() == wanted
    ]
    if len(same) > 1:
        raise UnknownItemError(f"{len(same)} items are called {text!r}: say which by its id, {name_some(same)}")
    return same[0] if same else None


def _whole_number(text: str) -> int | None:
    """The number that was typed; None for words, and for digits without end."""
    try:
        return int(text)
    except ValueError:
        return None


def _suggestion(model: Any, text: str) -> str:
    if model.titles_ is None and model.items_.dtype != object:
        return ""
    names = (model.items_ if model.titles_ is None else model.titles_).tolist()
    within = [name for name in names if len(text) > 2 and text.casefold() in name.casefold()]
    return did_you_mean(text, names, 3) or (f" (did you mean {', '.join(within[:3])}?)" if within else "")
