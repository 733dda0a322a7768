"""Which devices take part in a collective together, and which axes of the mesh that is.

A device's number in a program is its place in the mesh, counted with the last axis fastest.
"""

import functools
import math
import re

import numpy as np

from jaxlm.plan.hlo import HloError, Instruction, ints

type Groups = tuple[tuple[int, ...], ...]


def of(instruction: Instruction, devices: int) -> Groups:
    """The groups of a collective of any form; an empty list of groups is all devices."""
    pairs = instruction.attribute("source_target_pairs")
    if pairs is not None:
        return _lists(pairs)
    text = instruction.attribute("replica_groups")
    if text is None:
        raise HloError(f"{instruction.opcode} {instruction.name} names no groups of devices")
    return parse(text, devices)


def parse(text: str, devices: int) -> Groups:
    """Groups as they are printed, followed by anything:

    - `{{0,1},{2,3}}`: lists;
    - `[4,2]<=[2,4]T(1,0)`: 4 groups of 2, of the numbers 0 to 7 shaped [2, 4] and transposed;
    - `mesh['data'=2,'fsdp'=4] {'fsdp'}`: named axes vary inside a group. A part of an axis is
      `'fsdp':(2)2`, 2 ways below its first 2; `device_ids=(...)` may follow the mesh.
    """
    if text.startswith("mesh["):
        return _named(_NAMED.match(text))
    if text.startswith("["):
        return _iota(_IOTA.match(text))
    if text.startswith("{{"):
        return _lists(text)
    if text.startswith("{}"):
        return (tuple(range(devices)),)
    raise HloError(f"groups of devices in a form that is not known: {text[:80]!r}")


def axes(groups: Groups, mesh_shape: dict[str, int]) -> tuple[str, ...]:
    """The mesh axes, in the mesh's order, along which devices of one group differ."""
    return _axes(groups, tuple(mesh_shape.items()))


_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAMED = re.compile(r"mesh\[([^\]]+)\](?:, ?device_ids=\(((?:[^()]|\([\d,]*\))*)\))? \{([^}]*)\}")
_PART = re.compile(r"'?([^',:]+)'?(?::\((\d+)\)(\d+))?")


@functools.cache
def _axes(groups: Groups, mesh_shape: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    sizes = [size for _, size in mesh_shape]
    ids = np.array(groups)
    if ids.max() >= math.prod(sizes):
        raise HloError(f"device {ids.max()} of a group is not in the mesh {dict(mesh_shape)}")
    places = np.stack(np.unravel_index(ids, sizes))
    varies = (places != places[:, :, :1]).any(axis=(1, 2))
    return tuple(name for (name, _), differs in zip(mesh_shape, varies, strict=True) if differs)


def _lists(text: str) -> Groups:
    if text.startswith("{}"):
        return ()
    inner = text[: text.index("}}") + 1]
    return tuple(ints(group) for group in re.findall(r"\{([\d,]+)\}", inner))


def _iota(found: re.Match[str] | None) -> Groups:
    if found is None:
        raise HloError("groups of devices begin with [, but are not of the form [a,b]<=[c]T(d)")
    shape, ids = ints(found[1]), _numbers(found[2], found[3])
    return _rows(ids.reshape(-1, shape[-1]))


def _named(found: re.Match[str] | None) -> Groups:
    if found is None:
        raise HloError("groups of devices begin with mesh[, but name no axes behind it")
    sizes = {name: int(size) for name, size in re.findall(r"'?([^',=]+)'?=(\d+)", found[1])}
    ids = _device_ids(found[2], math.prod(sizes.values()))
    split: list[int] = []  # the mesh, with axes cut where only a part of one is meant
    inside: list[int] = []
    parts = [p for p in _PART.findall(found[3]) if p[0].strip()]
    for name, size in sizes.items():
        cuts = sorted((int(before), int(n)) for a, before, n in parts if a == name and before)
        done = 1
        for before, n in cuts:
            split.append(before // done)
            inside.append(len(split))
            split.append(n)
            done = before * n
        if not cuts and any(a == name for a, _, _ in parts):
            inside.append(len(split))
        split.append(size // done)
    outside = [d for d in range(len(split)) if d not in inside]
    ids = ids.reshape(split).transpose(*outside, *inside)
    return _rows(ids.reshape(-1, math.prod(split[d] for d in inside)))


def _device_ids(text: str | None, devices: int) -> np.ndarray:
    """`[4,2]T(1,0)` or `0,2,1,3`; None is in order."""
    if not text:
        return np.arange(devices)
    found = re.match(r"(?:\[[\d,]+\]<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?$", text)
    return _numbers(found[1], found[2]) if found else np.array(ints(text))


def _numbers(dims: str, order: str | None) -> np.ndarray:
    shape = ints(dims)
    ids = np.arange(math.prod(shape)).reshape(shape)
    return (ids.transpose(ints(order)) if order else ids).reshape(-1)


def _rows(ids: np.ndarray) -> Groups:
    return tuple(tuple(row) for row in ids.tolist())
