"""What command lines of launchers have in common: numbers, URLs, flags that are not for users."""

import argparse
from collections.abc import Callable, Sequence

from jaxlm import storage

PLACES = ("--coordinator", "--bind", "--process")
"""Flags of `jaxlm train` that say which process it is."""


def whole(least: int) -> Callable[[str], int]:
    """The type of an argument: a whole number."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return read


def refuse_places(
    parser: argparse.ArgumentParser, rest: Sequence[str], places: Sequence[str] = PLACES
) -> None:
    """Ends with an error if arguments for `jaxlm train` say which process it is."""
    for name in (argument.partition("=")[0] for argument in rest):
        if name in places:
            parser.error(f"{name} differs from process to process, the launcher sets it; remove it")


def check_urls(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Refuses those that may carry a secret, before it is in a log or the name of a directory."""
    for argument in arguments:
        value = argument.partition("=")[2] if argument.startswith("--") else argument
        url = value.strip("\"'")
        if storage.is_url(url):
            try:
                storage.check(url)
            except ValueError as e:
                parser.error(str(e))
