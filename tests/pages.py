"""Pages whose blocks are run: what is typed in a shell or in Python, and what it prints."""

import re
import shlex
from typing import NamedTuple

from deql.cli import run

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]\d+)?(?:\b ?(?:s|min|MiB|KiB)\b)?")


class Block(NamedTuple):
    line: int
    kind: str
    text: str


def blocks(page):
    return [Block(page[: match.start()].count("\n") + 1, match[1], match[2]) for match in _BLOCK.finditer(page)]


def numbers(line):
    return [float(one.replace(",", "")) for one in _NUMBER.findall(line) if one[-1].isdecimal()]


def alike(wanted, found):
    """Whether two lines have the same words, and numbers that differ by 2 % at most; times and sizes may be any.

    What is left out of a line is marked with "…", and then the rest of it is to be the same.
    """
    if "…" in wanted:
        return re.search(".*".join(map(re.escape, wanted.strip().split("…"))), found) is not None
    words = [" ".join(_NUMBER.sub(" # ", line).split()) for line in (wanted, found)]
    if words[0] != words[1]:
        return False
    pairs = zip(numbers(wanted), numbers(found), strict=True)
    return all(abs(one - other) <= 0.02 * abs(one) + 1e-9 for one, other in pairs)


def missing(shown, printed):
    """The first line of a block of output that was not printed, or not in this order."""
    rest = iter(printed.splitlines())
    wanted = [line for line in shown.splitlines() if line.strip() not in ("", "…")]
    return next((line for line in wanted if not any(alike(line, found) for found in rest)), None)


def commands(text):
    """The lines of a shell block as words, without comments; a line that ends in a backslash goes on."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def deql_shell(capsys):
    """What runs lines of a shell that call deql, for :func:`run_page`."""

    def shell(words, refused):
        assert words[0] == "deql", f"{words} is not run"
        code = run(words[1:])
        printed = capsys.readouterr()
        assert code == (2 if refused else 0), printed.err
        return printed.err + printed.out

    return shell


def run_page(path, text, shell, capsys):
    """Run a page's blocks one after the other, and compare what each one shows with what the one before printed.

    ``shell`` is called with the words of a line, and whether it is to be refused.
    """
    names, printed = {"__name__": "__main__"}, ""
    parts = blocks(text)
    for (line, kind, block), following in zip(parts, [*parts[1:], None], strict=True):
        if kind == "text":
            assert missing(block, printed) is None, f"{path.name}, the output in line {line}, of:\n{printed}"
        elif kind == "python":
            exec(compile(block, f"{path.name} from line {line}", "exec"), names)
            both = capsys.readouterr()
            printed = both.err + both.out
        else:
            assert kind == "shell", f"{path.name}, line {line}: {kind} is not run"
            refused = following is not None and following.text.startswith("deql: error: ")
            printed = "".join(shell(words, refused) for words in commands(block))
