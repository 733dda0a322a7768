"""Sections of the page about what training reads: held-out text, tokenizer, shards, mixture."""

from collections.abc import Iterable, Mapping
from typing import Any

from data_tools.report.markup import Markup, element, join
from data_tools.report.plots import Bar, bars, short
from data_tools.report.tables import Figure, count, share, size, table

type Data = Mapping[str, Any]


def heldout(data: Data) -> Markup:
    """How much of each type is kept for evaluation, asked for and real."""
    words = (
        "A document is held out by the hash of its text as it was read, and by nothing else. What "
        "says nearly the same as a held-out document is in neither split, and is counted on the "
        "right: so the real share is a little larger than the one asked for where there are copies."
    )
    rows = [
        {
            "type": row["type"],
            "asked": _percent(row["asked"]),
            "documents": row["documents"],
            "of the packed": share(row["documents"], row["packed"]),
            "tokens": row["tokens"],
            "of the tokens": share(row["tokens"], row["packed_tokens"]),
            "like held-out ones": row["barred"],
        }
        for row in data["heldout"]
    ]
    return join(element("p", words), table(rows))


def tokenizer(data: Data) -> Markup:
    """What the tokenizer is, what it was trained on, and how it does by source."""
    said, config = data["tokenizer"], data["recipe"]["tokenizer"]
    identity = join(f"{count(said['vocab_size'])} pieces; identity ", element("code", said["hash"]))
    if config["path"]:
        words = join(f"Existing tokenizer ({said['kind']}), ", element("code", config["path"]))
        about = element("p", words, ": ", identity, ".")
    else:
        about = join(
            element("p", f"Trained here: {said['kind']}, ", identity, "."), _training(data)
        )
    rows = [
        {
            "source": name,
            "text kept": size(c["kept_text_bytes"]),
            "tokens": c["tokens"],
            "bytes a token": Figure(f"{c['kept_text_bytes'] / max(c['tokens'], 1):.2f}"),
        }
        for name, c in data["sources"].items()
    ]
    return join(about, table(rows))


def _training(data: Data) -> Markup:
    """The sample, the memory it took, and the pieces that no text produces."""
    said, config = data["tokenizer"], data["recipe"]["tokenizer"]
    sample = sum(said["sample_bytes"].values())
    took = said["peak_bytes"]
    memory = f"Training was predicted to take {size(said['predicted_bytes'])} of memory" + (
        "; the system does not tell what it took. "
        if took is None
        else f", and took {size(took)}. "
    )
    named = config["control_symbols"]
    symbols = (
        f"{config['reserved']} control symbols are reserved, which no text produces: "
        f"{' '.join(named)}{' ' if named else ''}and numbered ones."
    )
    parts = [
        Bar(kind, [("sample", bytes)], f"{size(bytes)} · {share(bytes, sample)}")
        for kind, bytes in sorted(said["sample_bytes"].items())
    ]
    title = f"The text that it was trained on, by type: {size(sample)}"
    return join(element("p", memory, symbols), bars(title, parts))


def shards(data: Data) -> Markup:
    """How the tokens of each source lie in shards, and what was left out of them."""
    packing = data["packing"]
    cut = {
        "concat": "documents end to end, cut every {} tokens",
        "best_fit": "whole documents into chunks of {} tokens, longer ones cut",
    }[packing["method"]]
    words = (
        f"Packed by {packing['method']}: {cut.format(count(packing['chunk_tokens']))}. Padding is "
        "a share of all the tokens in the chunks; truncated documents are not whole in one chunk."
    )
    targets = [
        Bar(
            _label(p),
            [("tokens", p["tokens"]), ("padding", p["padding"])],
            f"{short(p['tokens'])} tokens, {share(p['padding'], _room(packing, p))} padding",
        )
        for p in packing["parts"]
    ]
    rows = [
        {"source": p["source"], "split": p["split"]}
        | {k: p[k] for k in ("documents", "tokens", "chunks")}
        | {"padding": share(p["padding"], _room(packing, p))}
        | {"truncated": share(p["truncated"], p["documents"])}
        | {"shards": p["shards"], "largest": size(p["largest_shard"])}
        | {"smallest": size(p["smallest_shard"]), "all": size(p["file_bytes"])}
        for p in packing["parts"]
    ]
    return join(
        element("p", words),
        bars("Tokens and padding in the shards", targets),
        table(rows),
        _buckets(packing),
        element("h3", "Excluded"),
        _excluded(data),
    )


def _label(part: Data) -> str:
    return part["source"] if part["split"] == "train" else f"{part['source']}, held out"


def _room(packing: Data, part: Data) -> int:
    return part["chunks"] * packing["chunk_tokens"]


def _buckets(packing: Data) -> Markup:
    """Buckets by quality, if there are any."""
    if not packing["buckets"]:
        return Markup()
    tokens = {p["source"]: p["tokens"] for p in packing["parts"] if p["split"] == "train"}
    rows = [
        {
            "bucket": b["source"],
            "quality": Figure(f"{b['from']:g} to {b['to']:g}"),
            "weight": Figure(f"{b['weight']:g}"),
            "tokens": tokens.get(b["source"], 0),
        }
        for b in packing["buckets"]
    ]
    words = "A token of a bucket is drawn as often as its weight says, beside others of its type."
    return join(element("h3", "Buckets by quality"), element("p", words), table(rows))


def _excluded(data: Data) -> Markup:
    """Documents that are tokenized and in no shard."""
    found = data["packing"]["excluded"]
    if not found:
        return element("p", "Every document that was kept is in a shard.")
    words = join(
        "Kept documents that are in no shard; another exclusion only packs anew. Each is named in ",
        element("code", "stages/shuffle/*/excluded.parquet"),
        ".",
    )
    rows = [
        {
            "source": row["source"],
            "reason": row["reason"],
            "documents": row["documents"],
            "of the kept": share(row["documents"], data["sources"][row["source"]]["kept"]),
            "tokens": row["tokens"],
            "text": size(row["text_bytes"]),
        }
        for row in found
    ]
    return join(element("p", words), table(rows))


def mixture(data: Data) -> Markup:
    """What a run draws: asked for and real, by type, source and stage."""
    plan = data["mixture"]
    if plan is None:
        return element("p", "No run is planned.")
    stated = (
        "The recipe states the proportions of the types."
        if plan["proportions"]
        else "The recipe states no proportions: each source is drawn by its size and weight."
    )
    planned = (
        f"{stated} Planned for a run of {short(plan['tokens'])} tokens that repeats no source more "
        f"than {plan['max_epochs']:g} times; a run has a plan of its own, for its own length."
    )
    drawn = []
    for t in plan["types"]:
        asked, real = (t[key] * plan["tokens"] for key in ("asked", "real"))
        drawn.append(Bar(t["name"], [("asked", asked)], _percent(t["asked"])))
        words = f"{_percent(t['real'])}, {t['epochs']:.2f} epochs"
        drawn.append(Bar("", [("real", real)], words))
    types = [
        {
            "type": t["name"],
            "asked": _percent(t["asked"]),
            "real": _percent(t["real"]),
            "tokens drawn": Figure(short(t["tokens"])),
            "epochs": Figure(f"{t['epochs']:.2f}"),
            "runs short by": _shortage(t),
        }
        for t in plan["types"]
    ]
    return join(
        element("p", planned),
        bars("Shares of the tokens that are drawn, asked for and real", drawn),
        table(types),
        element("h3", "By source"),
        table(list(_sources(plan))),
        _stages(plan),
    )


def _shortage(part: Data) -> Figure:
    missing = part["needed"] - part["capacity"]
    return Figure(f"{short(missing)} tokens" if missing > 0 else "")


def _sources(plan: Data) -> Iterable[dict[str, object]]:
    for s in plan["sources"]:
        yield {
            "source": s["source"],
            "type": s["type"],
            "tokens": Figure(short(s["supply"])),
            "weight": Figure(f"{s['weight']:g}"),
            "asked": _percent(s["asked"]),
            "real": _percent(s["real"]),
            "epochs": Figure(f"{s['epochs']:.2f}"),
            "limit": "reached" if s["full"] else "",
        }


def _stages(plan: Data) -> Markup:
    """A row a stage, where there are several."""
    if len(plan["stages"]) < 2:
        return Markup()
    rows = [
        {"from token": Figure(short(s["start"])), "to token": Figure(short(s["end"]))}
        | {kind: _change(s["asked"][kind], real) for kind, real in s["real"].items()}
        for s in plan["stages"]
    ]
    return join(element("h3", "By stage: real shares, and those asked for"), table(rows))


def _change(asked: float, real: float) -> Figure:
    return Figure(f"{_percent(real)} ({_percent(asked)})")


def _percent(part: float) -> Figure:
    return share(part, 1)
