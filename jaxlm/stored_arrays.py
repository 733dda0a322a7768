"""Orbax on object stores: it knows gs://, and is told here of s3://; its clients get our patience,
and make no directories.

Orbax 0.12.8 names stores in three private functions of its own, which are replaced.
`tests/test_stored_arrays.py` fails where an upgrade makes this wrong, or needless.
"""

import functools
import os
from collections.abc import Callable
from typing import Any

from orbax.checkpoint._src.path import gcs_utils
from orbax.checkpoint._src.serialization import tensorstore_utils

from jaxlm import storage


def prepare(url: str) -> None:
    """Call it before Orbax comes to a URL."""
    storage.give_patience()
    storage.make_no_directories(url.partition(":")[0])
    _tell_orbax()


@functools.cache
def _tell_orbax() -> None:
    gcs_utils.get_kvstore_for_gcs = storage.kvstore
    gcs_utils.is_hierarchical_namespace_enabled = _tolerant(
        gcs_utils.is_hierarchical_namespace_enabled
    )
    tensorstore_utils._use_gcs_driver = storage.is_url
    tensorstore_utils._normalize_path = _normalized


def _normalized(path: str) -> str:
    """Without what is doubled or at the end, but with both slashes of a scheme."""
    scheme, found, rest = path.partition("://")
    return f"{scheme}://{os.path.normpath(rest)}" if found else os.path.normpath(path)


def _tolerant(ask: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Who may write objects need not be allowed to look at the bucket's own settings."""

    def asked(path: Any) -> bool:
        try:
            return ask(path)
        except Exception:
            return False

    return asked
