"""Errors of the machine: the file system takes nothing, or this user may not write there."""

import errno
import os

from jaxlm.errors import EnvironmentProblem

ROOM = "make room"
ACCESS = "let this user read and write there"
REMEDIES = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EROFS: ACCESS,
    errno.EACCES: ACCESS,
    errno.EPERM: ACCESS,
}


def refusal(error: Exception) -> EnvironmentProblem | None:
    """What the user must mend before anything can go on, if `error` is about that."""
    code = error.errno if isinstance(error, OSError) else _full(error)
    if code not in REMEDIES:
        return None
    return EnvironmentProblem(f"{error}; {REMEDIES[code]}, then start again")


def _full(error: Exception) -> int | None:
    """An ArrayRecord writer tells of a full disk in words only."""
    told = (n for n in (errno.ENOSPC, errno.EDQUOT) if os.strerror(n) in str(error))
    return next(told, None)
