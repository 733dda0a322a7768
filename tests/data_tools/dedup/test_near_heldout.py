"""Near dedup keeps training clear of evaluation: real texts, compared again by a plain reading."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from data_tools.dedup.config import BandConfig, NearConfig, SameConfig
from data_tools.document import Document, digest
from data_tools.heldout import HELDOUT_DUPLICATE, HeldoutConfig
from tests.data_tools.dedup.material import (
    WORDS,
    Outcome,
    document,
    edited,
    english,
    naive_jaccard,
    near_dedup,
)

HELDOUT = HeldoutConfig(0.15, types=(("book", 0.4), ("forum", 0.0)))
TYPES = ("web", "book", "forum")
# a pair of similarity 0.8 has no band in common with probability 1e-14: what is missed for that
# reason is not what is tested here
NEAR = NearConfig(candidates=BandConfig(32, 2))


def corpus(seed: int) -> list[Document]:
    """Chains of near copies of all types, in the order in which they are added. Of some, the text
    as it was read is another one: cleaning made them alike, or equal."""
    rng = random.Random(seed)
    found: list[Document] = []
    for family, _ in itertools.product(range(7), range(rng.randrange(1, 9))):
        name = (seed, family, len(found))
        words = english((seed, family), 120) if rng.random() < 0.3 or not found else None
        # from where the family has got to: two ends of a chain are not alike
        before = words or found[-1].text.split()
        text = " ".join(edited(before, name, rng.choice((0, 1, 1, 2)), WORDS))
        read = text if rng.random() < 0.7 else f"{text} {rng.choice('abc')}"
        quality = rng.random()
        made = document(read, len(found), rng.choice(TYPES), "s", quality)
        found.append(made.with_text(text))
    rng.shuffle(found)
    return found


def holds(config: HeldoutConfig, document: Document) -> bool:
    return config.holds(document.read_hash, document.type)


def held(documents: list[Document]) -> set[bytes]:
    return {d.id for d in documents if holds(HELDOUT, d)}


def grown(documents: list[Document], tmp_path) -> Iterator[tuple[list[Document], Outcome]]:
    for part in (2, 1):
        here = documents[: len(documents) // part]
        yield here, near_dedup(tmp_path / str(part), here, NEAR, 2, heldout=HELDOUT)


@pytest.mark.parametrize("seed", range(8))
def test_training_is_like_no_evaluation_text_of_this_corpus_or_a_smaller_one(tmp_path, seed):
    documents = corpus(seed)
    by_id = {d.id: d for d in documents}
    evaluated: set[bytes] = set()
    for here, outcome in grown(documents, tmp_path):
        stay = {d.id for d in here if d.id not in outcome.verdicts}
        heldout = stay & held(here)
        stands = {id: outcome.kept_for(id) for id in outcome.verdicts}
        for id in evaluated:
            assert id in heldout or (
                outcome.rules[id] == "near_duplicate" and stands[id] in heldout
            )
        evaluated |= heldout
        for one, other in itertools.product(stay - heldout, evaluated):
            assert naive_jaccard(by_id[one], by_id[other]) < NEAR.same.threshold
        assert heldout and stay - heldout


@pytest.mark.parametrize("seed", range(4))
def test_the_verdict_says_which_copy_cannot_come_back(tmp_path, seed):
    documents = corpus(seed)
    by_id, outside = {d.id: d for d in documents}, {d.id for d in documents} - held(documents)
    (_, outcome) = list(grown(documents, tmp_path))[-1]
    barred = {id for id, rule in outcome.rules.items() if rule == HELDOUT_DUPLICATE}
    assert barred and barred < outside
    for id in barred:
        like = outcome.kept_for(id)
        similarity = naive_jaccard(by_id[id], by_id[like])
        assert similarity >= NEAR.same.threshold and like not in outside
        detail = f"similarity {similarity:.4f} to document {like.hex()}, which is held out"
        assert outcome.verdicts[id] == detail
    # what stays outside though it goes for near copies alone is like nothing that is held out
    for id in outside - barred:
        for other in held(documents):
            assert naive_jaccard(by_id[id], by_id[other]) < NEAR.same.threshold


def test_clean_text_moves_no_document(tmp_path):
    """Other rules make other texts: what was held out is so, or is a near copy of what is."""
    documents = corpus(1)
    changed = [d.with_text(" ".join(d.text.split()[:-20])) for d in documents]
    splits = []
    for name, version in (("before", documents), ("after", changed)):
        outcome = near_dedup(tmp_path / name, version, NEAR, heldout=HELDOUT)
        stay = {d.id for d in version if d.id not in outcome.verdicts}
        splits.append({id: id in held(version) for id in stay})
    both = splits[0].keys() & splits[1].keys()
    assert both and {id: splits[0][id] for id in both} == {id: splits[1][id] for id in both}


def test_a_document_that_holds_a_held_out_one_goes_too(tmp_path):
    short, long = english("short", 100), english("long", 60)
    inside = document(" ".join(short), 0)
    whole = document(" ".join([*short, *long]), 1)
    config = NearConfig(candidates=BandConfig(64, 2), same=SameConfig(containment=0.9))
    # one that holds out the part and not the whole
    salts = (HeldoutConfig(0.5, salt=str(i)) for i in range(99))
    heldout = next(c for c in salts if [d for d in (inside, whole) if holds(c, d)] == [inside])
    outcome = near_dedup(tmp_path, [inside, whole], config, heldout=heldout)
    assert outcome.rules == {whole.id: HELDOUT_DUPLICATE}
    assert "held out, one of them has 1.0000 of the other" in outcome.verdicts[whole.id]


def test_copies_in_a_type_with_another_share(tmp_path):
    """The same text as a book, where it is held out, and on the web, where it would not be."""
    heldout = replace(HELDOUT, fraction=0.0)
    text = next(
        t
        for t in (" ".join(english(i, 100)) for i in range(99))
        if heldout.holds(digest(t), "book")
    )
    documents = [document(text, 0, "web", quality=1.0), document(text, 1, "book", quality=0.1)]
    outcome = near_dedup(tmp_path, documents, NEAR, heldout=heldout)
    assert outcome.rules == {documents[0].id: HELDOUT_DUPLICATE}
