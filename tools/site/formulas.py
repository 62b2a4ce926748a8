"""LaTeX to MathML, which browsers draw by themselves."""

import html as escaping
import re

from latex2mathml.converter import convert

_BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)


def render(html: str) -> str:
    """A page in which every formula that `pymdownx.arithmatex` found is MathML."""
    html = _BLOCK.sub(lambda found: f'<div class="formula" tabindex="0">{_convert(found[1], "block")}</div>', html)
    return _INLINE.sub(lambda found: _convert(found[1], "inline"), html)


def _convert(latex: str, display: str) -> str:
    return convert(escaping.unescape(latex).strip(), display=display)
