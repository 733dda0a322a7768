"""The clean stage: documents through the ordered rules."""

from importlib.metadata import version
from pathlib import Path

from data_tools.clean.rule import Rule
from data_tools.document import Document, Drop, read_tables, table_writer
from data_tools.drops import Drops
from data_tools.stage import Partition, Report, Stage

type NamedRules = tuple[tuple[str, Rule], ...]
"""Name in `RULES` and the rule with all its thresholds, in the order of the recipe."""


def clean_partition(partition: Partition[NamedRules], out: Path) -> Report:
    """Writes documents.parquet, and dropped.parquet when a document is dropped."""
    drops = Drops()
    documents = text_bytes = 0
    with table_writer(out / "documents.parquet") as write:
        for document in read_tables(i.path for i in partition.inputs["documents"]):
            result = _apply(document, partition.config)
            if isinstance(result, Drop):
                drops.add(document, result)
            else:
                write(result)
                documents += 1
                text_bytes += len(result.text.encode())
    drops.save(out)
    return {"documents": documents, "text_bytes": text_bytes} | drops.report()


def _apply(document: Document, rules: NamedRules) -> Document | Drop:
    for _, rule in rules:
        result = rule(document)
        if isinstance(result, Drop):
            return result
        document = result
    return document


# ftfy decides what is damage, so another release of it is another rule
CLEAN = Stage("clean", f"1 ftfy {version('ftfy')}", clean_partition)
