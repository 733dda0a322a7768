"""What a recipe says about private data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from data_tools.privacy.ner import NER
from data_tools.privacy.span import ENTITIES, NAMED
from jaxlm.schema import ConfigError, parse, to_dict

Policy = Literal["keep", "tag", "mask", "hash", "drop"]
"""What may happen to a thing that was found."""

CODE = {
    "bank_card": "keep",
    "ip": "keep",
    "mobile": "keep",
    "landline": "keep",
    "passport": "keep",
    "plate": "keep",
    "wechat": "keep",
    "qq": "keep",
    "person": "keep",
}
"""Source code: numbers in it are constants and test vectors. What has an author stays masked:
e-mail addresses, and resident ids, whose checksum, date and region no constant meets by chance."""


@dataclass(frozen=True)
class PrivacyConfig:
    """A policy for each type of private data.

    keep: nothing happens. tag: the text stays, and the document's meta says what it has. mask: a
    placeholder of the same shape. hash: a keyed one, the same for the same thing. drop: the whole
    document goes. generalise (ICD-10): the code without its decimals.
    """

    resident_id: Policy = "mask"
    """Resident identity number of 18 digits, or of 15 with context."""
    email: Policy = "mask"
    """E-mail address."""
    uscc: Policy = "tag"
    """Unified social credit code: it names an organisation."""
    bank_card: Policy = "mask"
    """Bank card number."""
    ip: Policy = "mask"
    """Public IPv4 or IPv6 address."""
    mobile: Policy = "mask"
    """Mobile number."""
    landline: Policy = "mask"
    """Landline number with its area code, or with context."""
    passport: Policy = "mask"
    """Passport or travel permit, with context."""
    plate: Policy = "mask"
    """Vehicle plate."""
    wechat: Policy = "mask"
    """WeChat id, with context."""
    qq: Policy = "mask"
    """QQ number, with context."""
    icd10: Literal["keep", "tag", "generalise"] = "keep"
    """Diagnosis code, with medical context or decimals."""
    person: Policy = "mask"
    """Name of a person; needs `ner`."""
    place: Policy = "keep"
    """Name of a place; needs `ner`."""
    organisation: Policy = "keep"
    """Name of an organisation; needs `ner`."""
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"code": CODE})
    """Source type -> the policies above that differ for it."""
    key_file: str = ""
    """The key of `hash`: an absolute path to a file of at least 16 bytes. It is never copied."""
    ner: str = "none"
    """A key of `data_tools.privacy.ner.NER`; none finds no names, and the report says so."""
    ner_path: str = ""
    """bert_crf: the absolute path of the checkpoint's directory."""

    def __post_init__(self) -> None:
        if self.ner not in NER:
            raise ValueError(f"ner={self.ner!r} must be one of {', '.join(NER)}")
        model = NER[self.ner]
        if (model is not None and model.needs_path) != bool(self.ner_path):
            raise ValueError(
                f"ner_path={self.ner_path!r} with ner={self.ner!r}: give the directory of a "
                "checkpoint with ner='bert_crf', and nothing without"
            )
        for name in ("key_file", "ner_path"):
            path = getattr(self, name)
            if path and not Path(path).is_absolute():
                raise ValueError(f"{name}={path!r} must be an absolute path")
        if self.hashes() and not self.key_file:
            raise ValueError(f"{self.hashes()[0]}='hash' needs a key; name its file in key_file")
        for kind in self.types:
            self.of(kind)

    def of(self, type: str) -> "PrivacyConfig":
        """What holds for a source type: its own policies, and no other type's."""
        own, path = self.types.get(type, {}), f"config.privacy.types[{type!r}]"
        if not isinstance(own, Mapping):
            raise ConfigError(
                f"{path}={own!r}: must be a mapping of private data to policies, for example "
                "{'email': 'keep'}"
            )
        unknown = [name for name in own if name not in ENTITIES]
        if unknown:
            raise ConfigError(
                f"{path}.{unknown[0]}: is no type of private data; use one of {', '.join(ENTITIES)}"
            )
        return parse(PrivacyConfig, {**to_dict(self), "types": {}, **own}, path)

    def policies(self) -> dict[str, str]:
        """Entity -> policy, in order of trust."""
        return {entity: getattr(self, entity) for entity in ENTITIES}

    def hashes(self) -> list[str]:
        """Entities that are hashed: these need the key."""
        return [entity for entity, policy in self.policies().items() if policy == "hash"]

    def names(self) -> list[str]:
        """Entities with a policy that only a model of names can find: these need it."""
        return [entity for entity in NAMED if getattr(self, entity) != "keep"]
