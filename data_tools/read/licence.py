"""Licences: the SPDX identifier that a file declares, or that the licence beside it goes by."""

import functools
import re
from pathlib import Path

UNKNOWN = "unknown"
HEAD_CHARACTERS = 4096
"""A file says its licence in its first lines."""

TAG = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]+)")

PHRASES = (
    ("AGPL-3.0", r"GNU Affero General Public License"),
    ("LGPL-3.0", r"GNU Lesser General Public License.{0,300}version 3"),
    ("LGPL-2.1", r"GNU (Lesser|Library) General Public License"),
    ("GPL-3.0", r"GNU General Public License.{0,300}version 3"),
    ("GPL-2.0", r"GNU General Public License"),
    ("Apache-2.0", r"Apache License,? version 2\.0|apache\.org.licenses.LICENSE.2\.0"),
    ("MPL-2.0", r"Mozilla Public License,?( version| v\.) ?2\.0"),
    ("EPL-2.0", r"Eclipse Public License (- )?v(ersion)? ?2\.0"),
    ("BSL-1.0", r"Boost Software License"),
    ("CC0-1.0", r"CC0 1\.0 Universal"),
    ("Unlicense", r"This is free and unencumbered software released into the public domain"),
    ("PSF-2.0", r"Python Software Foundation License|PSF LICENSE AGREEMENT FOR PYTHON"),
    ("MIT", r"Permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("ISC", r"Permission to use, copy, modify, and( or)? distribute this software"),
    ("Zlib", r"provided .?as-is.?, without any express or implied warranty. In no event"),
    ("BSD-3-Clause", r"Redistribution and use in source and binary forms.*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    ("BSD-3-Clause", r"governed by a BSD.style license"),
    ("MIT", r"(released|licensed|distributed|available) under the( terms of the)? MIT licen[sc]e"),
    ("MIT", r"^(the )?MIT licen[sc]e"),
)
"""Of words without markup, in order: the GNU licences name each other, the narrowest goes first."""

KNOWN = tuple((name, re.compile(phrase, re.IGNORECASE)) for name, phrase in PHRASES)
MARKUP = re.compile(r"[\s#*/;%<>!\"-]+")
"""What stands around and between the words of a licence in a comment."""

FILE_NAMES = re.compile(
    r"(licen[sc]e|copying|unlicense)(\.(txt|md|rst))?|(licen[sc]e|copying)[-.](mit|apache|bsd|lesser)",
    re.IGNORECASE,
)


def identify(text: str) -> str | None:
    """The SPDX identifier of a tag or of well-known words, or None."""
    tag = TAG.search(text)
    if tag is not None:
        return tag[1].strip(" -")
    words = MARKUP.sub(" ", text).strip()
    return next((name for name, phrase in KNOWN if phrase.search(words)), None)


def licence_beside(path: Path, root: Path) -> Path | None:
    """The licence file in the directory of a file, or in the nearest one above, up to `root`."""
    for directory in path.parents:
        found = _in_directory(directory, directory.stat().st_mtime_ns)
        if found is not None or directory == root:
            return found
    return None


@functools.lru_cache(maxsize=1024)
def _in_directory(directory: Path, mtime_ns: int) -> Path | None:
    """Cached, since each of a directory's files asks; its time moves when a name comes or goes."""
    named = (p for p in directory.iterdir() if FILE_NAMES.fullmatch(p.name))
    return min((p for p in named if p.is_file()), default=None)


def licence_of(path: Path, text: str, root: Path) -> str:
    """The licence that a source file declares, else that of the nearest licence file."""
    found = identify(text[:HEAD_CHARACTERS])
    if found is None and (beside := licence_beside(path, root)) is not None:
        found = _of_file(beside, beside.stat().st_mtime_ns)
    return found or UNKNOWN


@functools.lru_cache(maxsize=1024)
def _of_file(path: Path, mtime_ns: int) -> str | None:
    with path.open("rb") as file:
        return identify(file.read(1 << 16).decode(errors="replace"))
