"""Lines that are boilerplate wherever they stand, however rare: patterns over normal forms.

A pattern must match the whole line, in its normal form (no case, half width, single spaces, 0 for
each number). Each is written so that no sentence of a text matches it.
"""

_GAP = r"(?:[\s0|/·•,、>»«<\-:\[\]()]|\.\.\.)*"


def _row_of(words: str, least: int = 1) -> str:
    """A line of nothing but these words, numbers and separators; `least` so many of the words."""
    return rf"{_GAP}(?:(?:{words}){_GAP}){{{least},}}"


_SHARES = "微信好友|微信|朋友圈|新浪微博|腾讯微博|微博|qq空间|qq好友|qq|豆瓣|人人网|复制链接"
_NETWORKS = "facebook|twitter|x|linkedin|pinterest|reddit|whatsapp|telegram|email|e-mail|copy link"

SEEDS: tuple[str, ...] = (
    # more of it
    r"(?:请)?点击(?:这里)?(?:查看|阅读|加载|展开)(?:更多|全文|详情|原文)[.…>»]*",
    r"(?:查看|阅读|加载|展开)(?:更多|全文|详情|原文)[.…>»]*",
    r"(?:click here to )?(?:read|show|load|view|see) (?:more|full article)[.…>»]*",
    # pages of a list
    r"共 ?0 ?[页条].{0,30}",
    r"第 ?0 ?页(?: ?[/,，、共]? ?(?:共 ?)?0 ?页)?",
    r"page 0(?: (?:of|/) 0)?",
    _row_of("首页|上一页|下一页|末页|尾页|上一篇|下一篇|上一章|下一章|返回目录|返回列表|跳转"),
    _row_of("previous page|next page|older posts|newer posts"),
    _row_of("previous|prev|next|first|last", least=2),
    # shares and social networks
    rf"(?:一键)?分享(?:到|至|给)?{_GAP}(?:(?:{_SHARES}){_GAP})*",
    rf"share(?: (?:this|on|via|to))*{_GAP}(?:(?:{_NETWORKS}){_GAP})*",
    r"(?:扫一扫|扫描二维码|长按二维码).{0,20}(?:关注|分享|下载).{0,12}",
    r"(?:欢迎)?关注(?:我们的?)?(?:微信)?(?:公众号|微博).{0,20}",
    r"follow us(?: on .{1,40})?",
    # going about a site
    r"(?:返回|回到)(?:顶部|首页|上一页|上页)",
    r"back to top",
    r"skip to (?:main )?content",
    _row_of(
        "登录|注册|立即登录|立即注册|忘记密码|设为首页|加入收藏|打印本页|打印|关闭窗口|网站地图"
    ),
    _row_of("log ?in|sign ?in|sign ?up|log ?out|forgot (?:your )?password|site ?map"),
    r"您?(?:现在|当前)的?位置 ?:.{1,60}",
    r"(?:相关(?:阅读|推荐|文章|新闻)|热门(?:推荐|文章)|猜你喜欢|推荐阅读|最新评论|发表评论) ?:?",
    r"(?:related (?:posts|articles)|you may also like|leave a (?:comment|reply)) ?:?",
    r"暂无(?:评论|数据|内容).{0,6}",
    # owners and officers
    r"(?:本站|本网站?)?版权所有(?![者人权]).{0,60}",
    r"(?:本站|本网站?)?(?:内容)?版权归.{0,30}所有.{0,30}",
    r"(?:copyright ?)?(?:©|\(c\)) ?0.{0,80}",
    r"copyright ?(?:©|\(c\))? ?0.{0,80}",
    r"(?:.{0,30}[\s|])?all rights reserved\.?",
    r".{0,20}icp备 ?0号?(?:-0)?(?:.{0,30}公网安备 ?0号?)?",
    r".{0,8}公网安备 ?0号?",
    r"(?:违法和?不良信息)?举报(?:电话|邮箱) ?:.{1,60}",
    r"(?:免责声明|隐私政策|用户协议|服务条款|联系我们|关于我们|广告服务|友情链接|加入我们)",
    _row_of("privacy policy|terms of (?:use|service)|contact us|about us|cookie policy|disclaimer"),
    # consent
    r"(?:we|this (?:web)?site|our (?:web)?site) uses? cookies\b.{0,160}",
    r"by (?:continuing to (?:use|browse)|using) (?:this|our) (?:web)?site.{0,40}"
    r"(?:agree|consent|accept).{0,100}",
    _row_of(
        "accept all|reject all|accept cookies|accept all cookies|manage cookies|cookie settings"
    ),
    r"(?:本网站|我们)使用 ?cookies?.{0,80}",
    # scripts
    r"(?:please )?enable javascript.{0,60}",
    r"(?:请|您的浏览器)(?:开启|启用|不支持) ?javascript.{0,30}",
)
