"""What command lines of launchers have in common: numbers, URLs, flags that are not for users."""

import argparse
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from jaxlm import storage
from launch import exits
from launch.process import say
from launch.tool import Refused

NAME = (
    re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?"),
    "lower case letters, digits and -, from a letter on",
)
"""Of a job, in a cloud: pattern and words."""
OTHER_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"), "lower case letters, digits, - and ."
GRACE = "--config.watch.grace_seconds"
"""Of `jaxlm train`: a launcher's --grace-seconds sets it, and tells others too."""
_IMAGE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?P<version>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)
PLACES = ("--coordinator", "--bind", "--processes", "--process")
"""Flags of `jaxlm train` that say which process it is."""


class Parser(argparse.ArgumentParser):
    """Of a launcher's command line; what is wrong with it is told in one line."""

    def __init__(self, name: str, usage: str = "", description: str = "", epilog: str = ""):
        super().__init__(
            prog=f"python -m launch {name}",
            usage=f"%(prog)s {usage}" if usage else None,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        say(f"{message}; see `{self.prog} --help`")
        raise SystemExit(exits.USAGE)


def whole(least: int) -> Callable[[str], int]:
    """The type of an argument: a whole number."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return read


def name_of(workdir: str) -> str:
    """The name of a run's job: readable, and another for each work directory."""
    if not storage.is_url(workdir):
        workdir = str(Path(workdir).absolute())
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    slug = re.sub("[^a-z0-9]+", "-", last).strip("-")
    slug = slug if slug[:1].isalpha() else f"run-{slug}"
    digest = hashlib.sha256(workdir.rstrip("/").encode()).hexdigest()[:6]
    return f"{slug[:30].strip('-')}-{digest}"


def split(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """The launcher's own arguments, and those for `jaxlm train`: unknown ones, and those after --.

    Ends with an error if the latter say which process it is, or any may carry a secret.
    """
    cut = argv.index("--") if "--" in argv else len(argv)
    args, rest = parser.parse_known_args(argv[:cut])
    rest += argv[cut + 1 :]
    for name in (argument.partition("=")[0] for argument in rest):
        if name in PLACES:
            parser.error(f"{name} differs from process to process, the launcher sets it; remove it")
    check_urls(parser, [args.workdir, *rest])
    return args, rest


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


def check_grace(parser: argparse.ArgumentParser, arguments: Sequence[str], whom: str) -> None:
    """Refuses the program's own flag where the launcher's tells somebody else too."""
    if any(argument.partition("=")[0] == GRACE for argument in arguments):
        parser.error(f"{GRACE}: use --grace-seconds, which tells {whom} too")


def checked(rule: tuple[re.Pattern[str], str], flag: str, name: str, longest: int = 63) -> str:
    """A name by a rule; empty where the flag was not given. `ValueError` if it breaks the rule."""
    pattern, words = rule
    if name and (len(name) > longest or not pattern.fullmatch(name)):
        raise ValueError(f"{flag}={name}: must be {words}, {longest} at most")
    return name


def checked_url(workdir: str, whose: str) -> str:
    """A work directory that all hosts reach; `ValueError` if it is a path."""
    if not storage.is_url(workdir):
        raise ValueError(
            f"--workdir={workdir}: {whose} share no disk; write gs://BUCKET/PATH or s3://BUCKET/PATH"
        )
    return workdir


def checked_image(image: str) -> str:
    """A container's image that stays the same; `ValueError` if it may not."""
    found = _IMAGE.fullmatch(image)
    if not found:
        raise ValueError(
            f"--image={image}: is no name of an image; write "
            "REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG"
        )
    if not found["digest"] and found["version"] in (None, ":latest"):
        raise ValueError(
            f"--image={image}: may be another image at each start; name a tag, or a digest"
        )
    return image


def act(
    argv: Sequence[str],
    actions: Mapping[str, Callable[[Sequence[str]], int]],
    submit: Callable[[Sequence[str]], int],
) -> int:
    """A submitter's command line: an action by its name, or else a job; returns the exit code."""
    try:
        if argv and argv[0] in actions:
            return actions[argv[0]](argv[1:])
        return submit(argv)
    except ValueError as e:
        say(str(e))
        return exits.USAGE
    except Refused as e:
        say(str(e))
        return exits.ENVIRONMENT
