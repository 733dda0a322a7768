"""The rules that the source itself must keep, each a function: modules in, broken rules out.

Rules look at syntax trees, so an import counts wherever it stands: inside a function, under
TYPE_CHECKING, or as `import_module("...")`.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LAYERS: tuple[tuple[str, ...], ...] = (
    # 0: no JAX
    (
        "jaxlm",
        "jaxlm.data",
        "jaxlm.activity",
        "jaxlm.errors",
        "jaxlm.hardware",
        "jaxlm.records",
        "jaxlm.terminal",
    ),
    ("jaxlm.storage",),
    ("jaxlm.lease", "jaxlm.mirror"),
    ("jaxlm.site",),
    ("jaxlm.workdir",),
    (
        "jaxlm.schema",
        "jaxlm.clock",
        "jaxlm.platforms",
        "jaxlm.data.manifest",
        "jaxlm.data.tokenizer jaxlm.data.sentencepiece_tokenizer "
        "jaxlm.data.huggingface_tokenizer jaxlm.data.abstract_tokenizer",
        "jaxlm.data.permutation",
        "jaxlm.data.shares",
        "jaxlm.data.spread",
        "jaxlm.data.skips",
        "jaxlm.data.fingerprint",
        "jaxlm.ledger",
    ),
    (
        "jaxlm.allocator",
        "jaxlm.safety",
        "jaxlm.rollcall",
        "jaxlm.data.cache",
        "jaxlm.goodput",
    ),
    ("jaxlm.config", "jaxlm.lineage", "jaxlm.data.order", "jaxlm.data.documents"),
    ("jaxlm.data.mixture_plan", "jaxlm.llama", "jaxlm.data.files", "jaxlm.schedule"),
    ("jaxlm.data.mixture", "jaxlm.status"),
    ("jaxlm.status_lines",),
    # 1: the machine
    (
        "jaxlm.mesh",
        "jaxlm.metrics",
        "jaxlm.cluster",
        "jaxlm.compiled",
        "jaxlm.compiler",
        "jaxlm.signals",
    ),
    (
        "jaxlm.guard",
        "jaxlm.drift",
        "jaxlm.integrity",
        "jaxlm.vote",
        "jaxlm.replicas",
        "jaxlm.preflight",
    ),
    ("jaxlm.watchdog", "jaxlm.notices", "jaxlm.stored_arrays", "jaxlm.reads"),
    ("jaxlm.ops.*", "jaxlm.accumulate"),
    # 2: the parts of a run
    (
        "jaxlm.models.*",
        "jaxlm.optim.*",
        "jaxlm.loss",
        "jaxlm.data.source jaxlm.data.ahead jaxlm.data.synthetic jaxlm.data.loader "
        "jaxlm.data.corpus",
    ),
    # 3: what they make together
    ("jaxlm.state",),
    ("jaxlm.step", "jaxlm.checkpoint"),
    ("jaxlm.evaluate", "jaxlm.probe"),
    # 4: the whole of it, with the whole config
    ("jaxlm.saving", "jaxlm.trace", "jaxlm.sample"),
    ("jaxlm.run",),
    ("jaxlm.resume", "jaxlm.judge", "jaxlm.evidence", "jaxlm.corruption"),
    ("jaxlm.rollback",),
    ("jaxlm.train", "jaxlm.plan.*", "jaxlm.commands", "jaxlm.trace_lines"),
    # 5
    ("jaxlm.demo", "jaxlm.replay"),
    ("jaxlm.cli",),
    ("jaxlm.__main__",),
)
"""Lowest first. A string is a room, of one or more modules; `.*` takes in a whole package.

A module imports from its own room and from the layers below, never from a neighbour or from above.
"""

NO_JAX = tuple(room for layer in LAYERS[:11] for room in layer)

OUTSIDE: dict[str, tuple[str, ...]] = {
    "data_tools.*": NO_JAX,
    "configs.data.*": (
        "data_tools.mixture",
        "data_tools.pack.config",
        "data_tools.recipe",
        "data_tools.rule_sets",
        "data_tools.source",
        "jaxlm.schema",
    ),
    "configs.*": ("jaxlm.config", "jaxlm.llama"),
    "launch.*": ("jaxlm.storage",),
    "bench.*": ("jaxlm.*", "data_tools.*", "launch.*"),
}
"""Rooms outside the trainer, and what they may import."""

PACKAGES = ("jaxlm", "data_tools", "configs", "launch", "bench")
JAX = frozenset({"jax", "jaxlib", "flax", "optax", "orbax", "grain"})
HEAVY = JAX | {
    "array_record",
    "datasketch",
    "pyarrow",
    "scipy",
    "sentencepiece",
    "tensorboardX",
    "tokenizers",
}
STANDARD_LIBRARY_ONLY = (
    "launch.*",
    "jaxlm.allocator",
    "jaxlm.data.manifest",
    "jaxlm.errors",
    "jaxlm.hardware",
    "jaxlm.platforms",
)

FILE_LINES = 500
FUNCTION_LINES = 60


@dataclass(frozen=True)
class Import:
    """`target` is as long as the statement names it: a module, or a name in a module."""

    line: int
    target: str
    top_level: bool
    """Whether importing the module runs it."""


@dataclass(frozen=True)
class Module:
    """A source file."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import in it."""
        return tuple(_imports(self.tree, top_level=True))


Rule = Callable[[Sequence[Module]], Iterator[str]]


def read(root: Path, packages: Sequence[str] = PACKAGES) -> list[Module]:
    """The Python files of `packages` under `root`, named as they are imported."""
    modules = []
    for path in sorted(p for package in packages for p in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        modules.append(Module(name, path.read_text(encoding="utf-8")))
    return modules


def _imports(node: ast.AST, top_level: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                package = "." * level + (module or "")
                targets = [f"{package}.{alias.name}" for alias in names]
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(name)), *_],
            ) if called in ("import_module", "__import__"):
                targets = [name]
            case _:
                targets = []
        for target in targets:
            yield Import(getattr(child, "lineno", 0), target, top_level)
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _imports(child, top_level and not lazy and not checking)


# ---- who may import whom -------------------------------------------------------------------------


def imports_point_down(modules: Sequence[Module]) -> Iterator[str]:
    """Every module has a place, and imports only from where its place allows."""
    known = {m.name for m in modules}
    for module in modules:
        room = room_of(module.name)
        if room is None:
            yield f"{module.name} has no place: add it to LAYERS (or OUTSIDE) in tests/referee.py"
            continue
        allowed = (room, *_below(room))
        for line, target in sorted({(i.line, _module(i.target, known)) for i in module.imports}):
            where = f"{module.name}:{line} imports {target}"
            if target.startswith("."):
                yield f"{where}: write the absolute name"
            elif target.partition(".")[0] in PACKAGES and not _within(target, allowed):
                yield f"{where}, which is not below it"


def no_cycles(modules: Sequence[Module]) -> Iterator[str]:
    """No module imports itself through others, lazily or not."""
    known = {m.name for m in modules}
    graph = {m.name: {_module(i.target, known) for i in m.imports} & known for m in modules}
    done: set[str] = set()

    def walk(name: str, path: tuple[str, ...]) -> Iterator[str]:
        if name in path:
            yield "a cycle of imports: " + " -> ".join((*path[path.index(name) :], name))
        elif name not in done:
            for target in sorted(graph[name]):
                yield from walk(target, (*path, name))
            done.add(name)

    for name in graph:
        yield from walk(name, ())


def third_parties_stay_in_their_rooms(modules: Sequence[Module]) -> Iterator[str]:
    """JAX and its family above layer 0 only, Grain in one file, and none at all where so stated."""
    no_jax = (*NO_JAX, "data_tools.*", "configs.*", "launch.*")
    for module in modules:
        for i in module.imports:
            package, where = (
                i.target.partition(".")[0],
                f"{module.name}:{i.line} imports {i.target}",
            )
            if package in JAX and _within(module.name, no_jax):
                yield f"{where}: no JAX here, nor what needs it"
            elif package == "grain" and module.name != "jaxlm.data.source":
                yield f"{where}: only jaxlm.data.source may import Grain"
            elif (
                _within(module.name, STANDARD_LIBRARY_ONLY)
                and package not in sys.stdlib_module_names
                and package not in PACKAGES
            ):
                yield f"{where}: the standard library only, here"


def command_line_is_light(modules: Sequence[Module]) -> Iterator[str]:
    """`jaxlm.cli` parses before anything heavy is imported, by itself or through others."""
    by_name = {m.name: m for m in modules}
    waiting, seen = ["jaxlm.cli"], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        for i in by_name[name].imports:
            if i.top_level and i.target.partition(".")[0] in HEAVY:
                yield f"{name}:{i.line} imports {i.target} before jaxlm.cli has parsed: do it later"
            elif i.top_level:
                waiting.append(_module(i.target, set(by_name)))


def room_of(name: str) -> str | None:
    """The room that a module is in."""
    rooms = [*(room for layer in LAYERS for room in layer), *OUTSIDE]
    return next((room for room in rooms if _within(name, room.split())), None)


def _below(room: str) -> tuple[str, ...]:
    if room in OUTSIDE:
        return OUTSIDE[room]
    level = next(n for n, layer in enumerate(LAYERS) if room in layer)
    return tuple(lower for layer in LAYERS[:level] for lower in layer)


def _within(name: str, rooms: Sequence[str]) -> bool:
    return any(
        name == pattern or (pattern.endswith(".*") and f"{name}.".startswith(pattern[:-1]))
        for room in rooms
        for pattern in room.split()
    )


def _module(target: str, known: set[str]) -> str:
    """`a.b.name` -> `a.b` unless `a.b.name` is a module itself."""
    return target if target in known else target.rpartition(".")[0] or target


# ---- how the source is written -------------------------------------------------------------------


def files_are_short(modules: Sequence[Module]) -> Iterator[str]:
    """At most `FILE_LINES` lines a file."""
    for module in modules:
        lines = module.source.count("\n")
        if lines > FILE_LINES:
            yield f"{module.name}: {lines} lines, at most {FILE_LINES}: find the second noun in it"


def functions_are_short(modules: Sequence[Module]) -> Iterator[str]:
    """At most `FUNCTION_LINES` lines a function."""
    for module, f in _functions(modules):
        lines = (f.end_lineno or f.lineno) - f.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{module.name}:{f.lineno} {f.name}: {lines} lines, at most {FUNCTION_LINES}"


def no_keyword_catch_alls(modules: Sequence[Module]) -> Iterator[str]:
    """No `**kwargs`: a signature says what it takes."""
    for module, f in _functions(modules):
        if f.args.kwarg:
            yield f"{module.name}:{f.lineno} {f.name} takes **{f.args.kwarg.arg}: name them all"


def configs_are_not_guessed(modules: Sequence[Module]) -> Iterator[str]:
    """No `.get(` on a config: a field that is not there is an error."""
    for module in modules:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="get", value=ast.Name(id=n) | ast.Attribute(attr=n))
                ) if n in ("cfg", "config"):
                    yield f"{module.name}:{node.lineno} {n}.get(...): every field has a default"


def _functions(
    modules: Sequence[Module],
) -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, node


RULES: tuple[Rule, ...] = (
    imports_point_down,
    no_cycles,
    third_parties_stay_in_their_rooms,
    command_line_is_light,
    files_are_short,
    functions_are_short,
    no_keyword_catch_alls,
    configs_are_not_guessed,
)
