"""Drops documents that are one list."""

from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.measure import measure, share
from data_tools.document import Document, Drop

BULLETS = ("•", "‣", "▪", "●", "■", "◆", "◇", "○", "·", "・", "* ", "- ")


@dataclass(frozen=True)
class BulletLines:
    """Gopher's rule."""

    most: float = 0.9
    """Largest share of the lines that start with a bullet: Gopher's."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "most")

    def __call__(self, document: Document) -> Document | Drop:
        lines = measure(document.text).lines
        ratio = share(sum(line.startswith(BULLETS) for line in lines), len(lines))
        if ratio > self.most:
            detail = f"{ratio:.3f} of the lines start with a bullet, at most {self.most} allowed"
            return Drop("bullet_lines", detail)
        return document
