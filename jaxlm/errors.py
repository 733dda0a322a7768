"""What a user can put right: the command line shows the message without a traceback."""


class UserError(ValueError):
    """Wrong usage, configuration or data. Names the value, the rule and the remedy."""

    exit_code = 2
    """Never restarted: it would fail again."""


class EnvironmentProblem(UserError):
    """A machine that cannot run this: read-only storage, missing devices, hosts that differ."""

    exit_code = 78


RESTART = 75
"""Exit code: start me again. Stopped as asked, hung, lost a process, or a store did not answer."""


class PeerMissing(UserError):
    """Another process of the run did not come, or is lost: names it, and what waited for it."""

    exit_code = RESTART


def told(error: UserError) -> tuple[str, int]:
    """What other processes need to raise it too."""
    return str(error), error.exit_code


def as_told(text: str, exit_code: int) -> UserError:
    """What another process has raised."""
    error = UserError(text)
    error.exit_code = exit_code
    return error
