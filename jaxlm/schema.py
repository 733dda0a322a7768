"""Typed configuration: frozen dataclasses in, a locked ConfigDict to edit, frozen dataclasses out.

A config class is a frozen dataclass whose fields are made by `fixed`, `recorded`, `free` or
`section`, each with a docstring under it. `schema(cls)` gives the locked ConfigDict that a file in
`configs/` edits; `parse(cls, config)` rebuilds the dataclass, checking every type. `load` does both
for a config file and its command-line overrides. A file may have configs for several targets, the
keys of its `TARGETS`; its `get_config` takes one of them, and has a default. Every error is a
`ConfigError` that names the dotted path, the value and what is allowed.
"""

import ast
import dataclasses
import difflib
import importlib.util
import inspect
import itertools
import json
import math
import re
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from ml_collections import ConfigDict

from jaxlm import records
from jaxlm.errors import UserError

ResumeRule = Literal["fixed", "recorded", "free"]


class ConfigError(UserError):
    """A configuration that cannot be used: names the dotted path, the value and the remedy."""


def fixed[T](default: T) -> T:
    """A field that a resumed run may not change."""
    return cast(T, dataclasses.field(default=default, metadata={"resume": "fixed"}))


def recorded[T](default: T) -> T:
    """A field that a resumed run may change; the change is written to `history.jsonl`."""
    return cast(T, dataclasses.field(default=default, metadata={"resume": "recorded"}))


def free[T](default: T) -> T:
    """A field that does not touch the result of a run."""
    return cast(T, dataclasses.field(default=default, metadata={"resume": "free"}))


def section[T](cls: type[T]) -> T:
    """A nested config class, with its own defaults."""
    return cast(T, dataclasses.field(default_factory=cls))


# ---- dataclass -> ConfigDict ---------------------------------------------------------------------


def schema(cls: type) -> ConfigDict:
    """The defaults of `cls` as a locked ConfigDict: a new key in it raises."""
    config = ConfigDict(convert_dict=False)
    for f in dataclasses.fields(cls):
        default = f.default_factory() if callable(f.default_factory) else f.default
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise TypeError(f"{cls.__name__}.{f.name} has no default; a config field needs one")
        nested = dataclasses.is_dataclass(default)
        with config.ignore_type():
            config[f.name] = schema(type(default)) if nested else default
    return config.lock()


def to_dict(value: Any) -> Any:
    """A parsed config as plain data for JSON: dataclasses to dicts, tuples to lists."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [to_dict(v) for v in value]
    if isinstance(value, Mapping):
        return {k: to_dict(v) for k, v in value.items()}
    return value


# ---- ConfigDict -> dataclass ---------------------------------------------------------------------


def parse[T](cls: type[T], config: Mapping[str, Any] | ConfigDict, path: str = "config") -> T:
    """Rebuilds `cls` from a ConfigDict or a plain mapping; every key and type is checked.

    Missing keys take their defaults. Raises `ConfigError` with the dotted path.
    """
    hints = typing.get_type_hints(cls)
    unknown = [key for key in config if key not in hints]
    if unknown:
        raise ConfigError(_unknown(f"{path}.{unknown[0]}", unknown[0], list(hints)))
    values = {key: _convert(hints[key], value, f"{path}.{key}") for key, value in config.items()}
    try:
        return cls(**values)
    except ConfigError:
        raise
    except (ValueError, TypeError) as e:
        raise ConfigError(f"{path}: {e}") from None


def _convert(hint: Any, value: Any, path: str) -> Any:
    if isinstance(hint, typing.TypeAliasType):
        hint = hint.__value__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, cast(type, hint)):
            return value
        if isinstance(value, Mapping | ConfigDict):
            return parse(cast(type, hint), value, path)
    elif origin is Literal:
        if value in args:
            return value
        raise ConfigError(f"{path}={value!r}: must be one of {', '.join(map(repr, args))}")
    elif origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        inner = [a for a in args if a is not type(None)]
        return _convert(inner[0], value, path)
    elif origin is tuple and isinstance(value, list | tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_convert(args[0], v, f"{path}[{i}]") for i, v in enumerate(value))
        if len(args) == len(value):
            return tuple(
                _convert(a, v, f"{path}[{i}]")
                for i, (a, v) in enumerate(zip(args, value, strict=True))
            )
    elif hint is Any or (origin in (dict, Mapping) and isinstance(value, Mapping)):
        return value
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"{path}={value!r}: must be a finite number")
        return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    raise ConfigError(f"{path}={value!r}: must be {_type_name(hint)}")


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def _unknown(path: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{path}: unknown field; {hint}fields here: {', '.join(known)}"


# ---- files and overrides -------------------------------------------------------------------------


def load[T](cls: type[T], path: str | Path | None, overrides: Sequence[str] = ()) -> T:
    """The config of a `.py` file (its `get_config()`) or of a saved `.json`, with overrides.

    `FILE.py:TARGET` is the config that the file has for one of its `TARGETS`. No path: the
    defaults. `overrides` are strings `a.b=value`, read by the field's type.
    """
    config = schema(cls) if path is None else _read_file(cls, *split_target(path))
    for override in overrides:
        _apply(cls, config, override)
    return parse(cls, config)


def split_target(path: str | Path) -> tuple[Path, str | None]:
    """A path as it is given, `FILE.py:TARGET` or `FILE`, in its two parts."""
    file, colon, target = str(path).partition(".py:")
    return (Path(f"{file}.py"), target) if colon else (Path(path), None)


def targets(path: str | Path) -> tuple[str, ...]:
    """The targets that a `.py` file has configs for, its default first; often none."""
    file, _ = split_target(path)
    if file.suffix == ".json":
        return ()
    return _run(_existing(file), lambda path: tuple(_targets(_load_module(path))))


def one_target(path: str | Path) -> None:
    """`ConfigError` for a file with configs for several targets, of which none is chosen."""
    known = targets(path)
    if split_target(path)[1] is None and len(known) > 1:
        raise ConfigError(
            f"{path} has a layout for each of {', '.join(known)}; say which, as {path}:{known[0]}"
        )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"--config={path}: no such file")
    return path


def _read_file(cls: type, path: Path, target: str | None) -> ConfigDict:
    if _existing(path).suffix != ".json":
        return _run(path, lambda path: _get_config(path, target))
    try:
        values = records.parsed(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as e:
        raise ConfigError(f"--config={path}: JSON breaks at line {e.lineno}: {e.msg}") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"--config={path}: is not UTF-8: {e.reason} at byte {e.start}") from None
    except ValueError as e:
        raise ConfigError(f"--config={path}: {e}") from None
    config = schema(cls)
    _merge(config, values, "config")
    return config


def _run[T](path: Path, do: Callable[[Path], T]) -> T:
    """What `do` makes of a config file; a mistake in the file is told with its line."""
    try:
        return do(path)
    except ConfigError:
        raise
    except Exception as e:
        where = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == str(path)]
        line = e.lineno if isinstance(e, SyntaxError) else where[-1].lineno if where else "?"
        raise ConfigError(f"{path}:{line}: {_message(e)}") from e


def _load_module(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"--config={path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _targets(module: types.ModuleType) -> Mapping[str, Any]:
    return getattr(module, "TARGETS", {})


def _get_config(path: Path, target: str | None) -> ConfigDict:
    module = _load_module(path)
    get_config = getattr(module, "get_config", None)
    if get_config is None:
        raise ConfigError(f"--config={path}: the file defines no get_config()")
    if target is not None and target not in (known := _targets(module)):
        remedy = f"use one of {', '.join(known)}" if known else f"give --config={path}"
        rule = "unknown target" if known else "the file has no targets"
        raise ConfigError(f"--config={path}:{target}: {rule}; {remedy}")
    config = get_config() if target is None else get_config(target)
    if not isinstance(config, ConfigDict):
        raise ConfigError(
            f"--config={path}: get_config() gives {config!r}; return the edited schema()"
        )
    return config


def _message(e: Exception) -> str:
    """What ConfigDict says, without the error it is wrapped in and without all other values."""
    inner = e.args[0] if e.args else type(e).__name__
    if isinstance(inner, Exception):
        return _message(inner)
    return re.sub(r' Other fields present: ".*}"', "", str(inner), flags=re.DOTALL)


def _merge(config: ConfigDict, values: Any, path: str) -> None:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}={values!r}: is a section; write its fields as {{...}}")
    for key, value in values.items():
        if key not in config:
            raise ConfigError(_unknown(f"{path}.{key}", key, list(config)))
        if isinstance(config[key], ConfigDict):
            _merge(cast(ConfigDict, config[key]), value, f"{path}.{key}")
        else:
            with config.ignore_type():
                config[key] = value


def _apply(cls: type, config: ConfigDict, override: str) -> None:
    dotted, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"--config.{override}: write --config.{dotted}=VALUE")
    *parents, name = dotted.split(".")
    path = "config"
    for parent in parents:
        hint = _field_type(cls, parent, path)
        path = f"{path}.{parent}"
        if not dataclasses.is_dataclass(hint):
            raise ConfigError(f"{path}: is a value, it has no field {name!r}")
        cls, config = cast(type, hint), cast(ConfigDict, config[parent])
    hint = _field_type(cls, name, path)
    path = f"{path}.{name}"
    if dataclasses.is_dataclass(hint):
        raise ConfigError(f"{path}={text}: is a section; set one of its fields")
    with config.ignore_type():
        config[name] = _convert(hint, _read(hint, text), path)


def _field_type(cls: type, name: str, path: str) -> Any:
    hints = typing.get_type_hints(cls)
    if name not in hints:
        raise ConfigError(_unknown(f"{path}.{name}", name, list(hints)))
    return hints[name]


def _read(hint: Any, text: str) -> Any:
    args = typing.get_args(hint)
    if hint is str or (type(None) in args and str in args and text != "None"):
        return text
    if typing.get_origin(hint) is Literal and text in args:
        return text
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        return text


# ---- what a resume may change, and what --help prints --------------------------------------------


def changes(
    cls: type, old: Mapping[str, Any], new: Any, path: str = ""
) -> Iterator[tuple[str, Any, Any, ResumeRule]]:
    """Yields (dotted path, old value, new value, resume rule) where a saved config differs.

    `old` is plain data as written by `to_dict`, `new` a parsed config of `cls`. A field that the
    saved config does not know had its default; one that the code no longer knows is `recorded`.
    """
    known = {f.name for f in dataclasses.fields(cls)}
    for name in old:
        if name not in known:
            yield f"{path}{name}", old[name], None, "recorded"
    for f in dataclasses.fields(cls):
        here, value = f"{path}{f.name}", getattr(new, f.name)
        before = old.get(f.name, to_dict(f.default))
        if dataclasses.is_dataclass(value) and "resume" not in f.metadata:
            yield from changes(type(value), old.get(f.name, {}), value, f"{here}.")
        elif before != to_dict(value):
            yield here, before, to_dict(value), f.metadata["resume"]


def flat(config: Any, path: str = "config") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every field of a parsed config."""
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if "resume" in f.metadata:
            yield f"{path}.{f.name}", value
        else:
            yield from flat(value, f"{path}.{f.name}")


def docs(cls: type) -> dict[str, str]:
    """Field name -> the docstring under it, read from the source of `cls`."""
    body = cast(ast.ClassDef, ast.parse(inspect.getsource(cls)).body[0]).body
    found = {}
    for field, doc in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
            name = cast(ast.Name, field.target).id
            found[name] = inspect.cleandoc(str(ast.literal_eval(doc.value)))
    return found


def described(config: Any, path: str = "config") -> Iterator[str]:
    """Each field in two lines: its dotted name, value and resume rule; its meaning."""
    meanings = docs(type(config))
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), f"{path}.{field.name}"
        if "resume" in field.metadata:
            yield f"{name} = {value!r}  [{field.metadata['resume']}]\n    {meanings[field.name]}"
        else:
            yield from described(value, name)
