"""Records that JSON files hold: what a value must be to be one, by the annotations of a class.

Files of a run are read by commands that must say something of whatever a disk gave back.
"""

import functools
import json
import types
import typing
from collections.abc import Iterable
from typing import Any

NUMBER_LIMIT = 2**62
"""No number of a run is as large: times, bytes, rows."""


def parsed(text: str | bytes) -> Any:
    """What a JSON text says. `ValueError` if it is none, or goes deeper than can be followed."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists within lists, too deep to be followed") from None


def objects(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The objects in lines of JSON; what is none is left out."""
    found = []
    for text in texts:
        try:
            data = parsed(text)
        except ValueError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


def of[T](cls: type[T], data: dict[str, Any]) -> T | None:
    """A `NamedTuple` of what is said of its fields; None if one is missing or no value of its type.

    Numbers must be finite. An integer is a float too.
    """
    hints = _hints(cls)
    known = {name: value for name, value in data.items() if name in hints}
    if not all(fits(value, hints[name]) for name, value in known.items()):
        return None
    try:
        return cls(**known)
    except TypeError:  # a field without a default is missing
        return None


def fits(value: Any, hint: Any) -> bool:
    """Whether plain data is what an annotation says."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, inner) for inner in args)
    if origin is list:
        return isinstance(value, list) and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, args[1]) for item in value.values())
    if hint in (int, float):
        return type(value) in (int, hint) and -NUMBER_LIMIT < value < NUMBER_LIMIT
    return hint is Any or type(value) is hint or (hint is types.NoneType and value is None)


_hints = functools.cache(typing.get_type_hints)
