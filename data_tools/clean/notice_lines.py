"""Takes notices out of pages: cookies, JavaScript, terms of use."""

import re
from dataclasses import dataclass

from data_tools import thresholds
from data_tools.clean.lines import keep_lines
from data_tools.document import Document, Drop

# C4 takes out every line that says "javascript"; these say that it is off.
NOTICE = re.compile(
    r"(?:enable|activate|turn on|without|requires?|support|have|allow) javascript"
    r"|javascript (?:is|must be|has been|seems to be|to be|should be|in your|enabled|disabled)"
    r"|terms of (?:use|service)|privacy policy|cookie policy|cookies? policy"
    r"|uses? (?:of )?cookies|accept (?:all )?cookies|all rights reserved"
    r"|(?:启用|开启|打开|禁用|关闭|不支持|允许|啟用|開啟|停用)\s?javascript"
    r"|javascript\s?(?:已被|被|功能|支持)?(?:禁用|关闭|启用|停用)"
    r"|使用\s?cookies?|cookies?\s?(?:政策|设置)"
    r"|隐私(?:政策|权政策|声明|条款)|用户(?:协议|服务协议)|服务条款|使用条款|免责声明"
    r"|隱私(?:政策|權政策)|服務條款|使用條款"
    r"|版权所有|版權所有|icp备\d|icp备案|公网安备|增值电信业务经营许可证"
    r"|浏览器版本过低|升级(?:您的|你的)?浏览器",
    re.IGNORECASE,
)

# One of these is in every notice: most texts have none, and a plain search is faster.
HINTS = ("javascript", "terms of", "policy", "cookie", "rights reserved", "隐私", "隱私", "协议")
HINTS += ("条款", "條款", "声明", "版权", "版權", "icp备", "公网安备", "经营许可", "浏览器")


@dataclass(frozen=True)
class NoticeLines:
    """C4's rule on policy notices and JavaScript, and what Chinese pages say in their place.

    Only short lines go: a long one is likely to be text about the subject.
    """

    characters: int = 200
    """A longer line stays. C4 has no limit."""

    def __post_init__(self) -> None:
        thresholds.at_least(self, 1, "characters")

    def __call__(self, document: Document) -> Document | Drop:
        if not _hinted(document.text):
            return document
        return keep_lines(
            document,
            "notice_lines",
            lambda line: len(line) > self.characters or not (_hinted(line) and NOTICE.search(line)),
        )


def _hinted(text: str) -> bool:
    text = text.lower()
    return any(hint in text for hint in HINTS)
