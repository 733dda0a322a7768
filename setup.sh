#!/bin/sh
# Makes .venv, with Python 3.12 or 3.13 and the pinned packages of constraints.txt. Does nothing when
# that is there. PYTHON=/path/to/python chooses the interpreter.
#
# .venv/.installed says how far it came: "unfinished" from the first moment, and at the end a line
# that names what was installed, so that a killed or outdated installation is done again.
set -eu
cd "$(dirname "$0")"

say() { printf 'setup: %s\n' "$*" >&2; }

stop() {
    say "$*"
    exit 1
}

# Fails unless the interpreter runs, is of a supported version and can make environments: pyenv's
# shims exist without a Python behind them, and Debian's python3 comes without ensurepip.
version_of() {
    "$1" -c '
import sys
if not (3, 12) <= sys.version_info[:2] <= (3, 13): sys.exit(1)
import ctypes, ensurepip, ssl, venv
print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null
}

# One possible interpreter a line, the best first.
candidates() {
    for name in python3.13 python3.12 python3; do
        on_path "/$name"
    done
    for minor in 13 12; do
        for root in "${PYENV_ROOT:-}" "${HOME:-}/.pyenv"; do
            printf '%s\n' "$root/versions/3.$minor."*/bin/python
        done
        # pyenv's shims on the path: its versions lie beside them
        on_path "/../versions/3.$minor.*/bin/python" | sed 's|/[^/]*/\.\./|/|'
    done
}

candidates_of_uv() {
    command -v uv >/dev/null || return 0
    uv python find --system '>=3.12,<3.14' 2>/dev/null ||
        { uv python install 3.13 >&2 && uv python find --system 3.13; }
}

# Files that match a pattern, seen from each directory of PATH.
on_path() {
    (
        IFS=:
        for directory in $PATH; do
            IFS=
            printf '%s\n' "$directory"$1
        done
    )
}

# The first of the paths on standard input that will do.
first_usable() {
    while IFS= read -r path; do
        if [ -x "$path" ] && version_of "$path" >/dev/null; then
            printf '%s\n' "$path"
            break
        fi
    done
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" | first_usable
        return
    fi
    native=$(candidates | first_usable)
    if [ -n "$native" ]; then printf '%s\n' "$native"; else candidates_of_uv | first_usable; fi
}

wanted="$PWD $(cat setup.sh pyproject.toml constraints.txt | cksum)"
found=$(cat .venv/.installed 2>/dev/null || true)
usable=$(version_of .venv/bin/python || true)
if [ -n "$usable" ] && [ "$found" = "$wanted" ]; then
    exit 0
fi

# An environment that someone else made is used, and not made anew.
if [ -z "$usable" ] || [ "$found" = unfinished ]; then
    rm -rf .venv # before the search, which would find it where it is activated
    python=$(find_python)
    [ -n "$python" ] || stop "${PYTHON:+PYTHON=$PYTHON is }no Python 3.12 or 3.13 with venv and ensurepip here:" \
        "install python3.13-venv (apt), python@3.13 (brew), 3.13 by pyenv, or uv (which brings" \
        "its own), then run make again; PYTHON=/path/to/python3.13 names one that is elsewhere"
    say "creating .venv with Python $(version_of "$python") ($python)"
    mkdir .venv
    echo unfinished >.venv/.installed
    "$python" -m venv .venv || stop "$python cannot make an environment, see above"
fi

say "installing $(grep -c == constraints.txt) pinned packages (a minute or two)"
echo unfinished >.venv/.installed
.venv/bin/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
    -e '.[dev]' -c constraints.txt || stop "pip failed, see above; make again once that is mended"
printf '%s\n' "$wanted" >.venv/.installed
say "done"
