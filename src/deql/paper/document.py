"""A table of the paper made again, as a document: once as HTML, once as Markdown with its plots beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deql._system.tables import Grid, markdown_escape, markdown_table
from deql.io.atomic import write_text
from deql.report import page
from deql.report.page import Figure

__all__ = ["Document", "Figure", "Section", "capitalised", "write_document"]


def capitalised(text: str) -> str:
    """A sentence from words: its first letter large, the others as they are.

    Examples
    --------
    >>> capitalised("weak split of Gowalla")
    'Weak split of Gowalla'
    """
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, in this order: words, tables, figures, remarks.

    Attributes
    ----------
    heading : str
    words : list of str
        Paragraphs.
    grids : list of Grid
    key : list of str
        What the colours of the figures stand for, in the order of the colours.
    figures : list of Figure
    remarks : list of str
        Paragraphs that explain tables and figures.
    """

    heading: str
    words: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    key: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class Document:
    """What a command has to say.

    Attributes
    ----------
    title, lead : str
        What it is, and what was found, in one or two sentences.
    facts : dict of str to str
        Command, machine, data, …
    sections : list of Section
    """

    title: str
    lead: str
    facts: Mapping[str, str]
    sections: Sequence[Section] = field(default_factory=list)

    def html(self) -> str:
        """One self-contained page."""
        return page.render("document", self.title, document=self)

    def markdown(self, plots: Sequence[str]) -> str:
        """Text with tables; ``plots`` are the names of the files with the figures, in their order."""
        names = iter(plots)
        parts = [f"# {markdown_escape(self.title)}"] + [f"**{markdown_escape(self.lead)}**"] * bool(self.lead)
        parts.append("\n".join(f"- {markdown_escape(name)}: {markdown_escape(text)}"
                               for name, text in self.facts.items()))  # fmt: skip
        for section in self.sections:
            parts.append(f"## {markdown_escape(section.heading)}")
            parts += map(markdown_escape, section.words)
            for grid in section.grids:
                parts += [f"{markdown_escape(grid.title)}:"] * bool(grid.title) + [markdown_table(grid)]
            for figure in section.figures:
                caption = markdown_escape(figure.caption)
                parts += [f"![{caption}]({next(names)})", f"*{caption}*"]
            if section.key and section.figures:
                parts.append(markdown_escape(f"Colours: {', '.join(page.with_symbols(section.key))}."))
            parts += map(markdown_escape, section.remarks)
        return "\n\n".join(parts) + "\n"


def write_document(document: Document, folder: Path, stem: str) -> list[Path]:
    """Write ``stem.html``, ``stem.md`` and a file for each plot, each whole or not at all; returns their paths."""
    svgs = [figure.svg for section in document.sections for figure in section.figures]
    plots = [f"{stem}-{number}.svg" for number in range(1, len(svgs) + 1)]
    for name, svg in zip(plots, svgs, strict=True):
        write_text(folder / name, page.standalone(svg))
    for old in folder.glob(f"{stem}-*.svg"):  # of an earlier document that had more
        if old.name not in plots and old.stem.removeprefix(f"{stem}-").isdecimal():
            old.unlink(missing_ok=True)
    write_text(folder / f"{stem}.md", document.markdown(plots))
    write_text(folder / f"{stem}.html", document.html())
    return [folder / f"{stem}.md", folder / f"{stem}.html", *(folder / name for name in plots)]
