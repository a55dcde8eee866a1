"""Damage: to bytes, to what JSON holds, and to arrays. The same random numbers do the same damage."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEEP, LONG = "@deep@", "@long@"
"""Stand for what Python's own writer of JSON cannot write: very deep lists, and a number of thousands of digits."""

_VALUES = (
    None, True, False, 0, 1, -1, 2, 7, 255, 2**31,
    -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**64), 10**30, 0.5, -0.0,
    1e-320, 1e308, float("inf"), float("-inf"), float("nan"), "", "tea", "0",
    "1e999", "\ud800", "\0", "a" * 70_000, [], {},
    [[]], [None], {"a": 1}, DEEP, LONG,
)  # fmt: skip
_WORDS = (
    b"", b"\0", b"\n", b"\r\n", b",", b'"', b"'", b"\t", b"::", b"\\", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"-1", b"0",
    b"1e400", b"NaN", b"inf", b"null", b"true", b"9223372036854775808", b"{", b"[", b"}",
    b"user", b"item", b"1:", b"2005-13-45",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 3, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)
_SPECIAL = (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 1e-40)
_TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8)


def damage_bytes(content: bytes, random: Random) -> bytes:
    """A few changes: bits, pieces cut out, doubled, moved or cut off, words put in, lengths overwritten."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        content = _damage_once(content, random)
    return content


def _damage_once(content: bytes, random: Random) -> bytes:
    size = len(content)
    here, there = sorted((random.randint(0, size), random.randint(0, size)))
    there = min(there, here + random.choice((1, 4, 30, 1000)))
    match random.randrange(9):
        case 0 if size:
            place = random.randrange(size)
            return content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :]
        case 1:
            return content[: random.randint(0, size)]
        case 2:
            return content[:here] + content[there:]
        case 3:
            return content[:there] + content[here:there] * random.choice((1, 1, 2, 50)) + content[there:]
        case 4:
            return content[:here] + random.choice(_WORDS) + content[there if random.random() < 0.5 else here :]
        case 5:  # a length, wherever one may be
            width = random.choice((1, 2, 4, 8))
            number = random.choice(_NUMBERS) % 2 ** (8 * width)
            place = random.choice((0, 4, max(0, size - 8), here))
            return content[:place] + number.to_bytes(width, "little") + content[place + width :]
        case 6:
            return content[:here] + random.randbytes(there - here) + content[there:]
        case 7 if size:  # lines in another order
            lines = content.split(b"\n")
            random.shuffle(lines)
            return b"\n".join(lines)
        case _:
            return content + random.choice((b"\0", content, random.randbytes(9)))


def damage_json(value: Any, random: Random) -> Any:
    """The same with some of its values, keys and lists changed."""
    for _ in range(random.choice((1, 1, 2, 3))):
        value = _change_somewhere(value, random)
    return value


def _change_somewhere(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value, key=str))
        match random.randrange(8):
            case 0:
                return {key: one for key, one in value.items() if key != name}
            case 1:
                return value | {random.choice(("x", name + "_", "", "step", "__metadata__")): value[name]}
            case 2:
                other = random.choice(sorted(value, key=str))
                return value | {name: value[other], other: value[name]}
            case _:
                return value | {name: _change_somewhere(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        place = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value + value[place : place + 1]
            case 2:
                return value[::-1]
            case _:
                return [*value[:place], _change_somewhere(value[place], random), *value[place + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and random.random() < 0.8:  # JSON in JSON
        try:
            return dump(damage_json(json.loads(value), random)).decode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            pass
    if isinstance(value, int | float) and not isinstance(value, bool) and random.random() < 0.3:
        return value + random.choice((1, -1, 0.5))
    return random.choice(_VALUES)


def dump(value: Any) -> bytes:
    """JSON, also of what :data:`DEEP` and :data:`LONG` stand for."""
    text = json.dumps(value, ensure_ascii=False)
    text = text.replace(f'"{DEEP}"', "[" * 60_000 + "]" * 60_000).replace(f'"{LONG}"', "7" * 5_000)
    return text.encode("utf-8", "surrogatepass")


def damage_arrays(arrays: dict[str, NDArray[Any]], random: Random) -> dict[str, NDArray[Any]]:
    """Arrays of which a few have other numbers, types, lengths, shapes or names."""
    arrays = {name: np.array(array) for name, array in arrays.items()}
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not arrays:
            break
        name = random.choice(sorted(arrays))
        array = arrays[name]
        match random.randrange(10):
            case 0:
                del arrays[name]
            case 1:
                other = random.choice(sorted(arrays))
                arrays[name], arrays[other] = arrays[other], array
            case 2:
                with np.errstate(all="ignore"):
                    arrays[name] = array.astype(random.choice(_TYPES))
            case 3:
                arrays[name] = array[: random.randint(0, len(array))] if array.ndim else array
            case 4:
                arrays[name] = np.concatenate([array, array[: random.randint(0, 3)]]) if array.ndim else array
            case 5:
                arrays[name] = array.reshape(random.choice(((1, -1), (-1, 1), (-1,)))) if array.size else array
            case 6:
                arrays[f"{name}_"] = array
            case _:
                _set_some(array, random)
    return arrays


def _set_some(array: NDArray[Any], random: Random) -> None:
    flat = array.reshape(-1)
    for _ in range(random.choice((1, 1, 3))):
        if flat.size:
            special = random.choice(_SPECIAL if array.dtype.kind == "f" else _NUMBERS)
            with np.errstate(all="ignore"):
                flat[random.randrange(flat.size)] = np.array(special).astype(array.dtype)
    if flat.size > 1 and random.random() < 0.3:
        flat[:] = np.array(random.sample(flat.tolist(), flat.size), array.dtype)
