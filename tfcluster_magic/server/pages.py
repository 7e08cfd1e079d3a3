"""The two pages of our own in a board's tab: it is starting, and it does not start. Pure.

Promises that what a program said is text in them, that they need no script, and that they are light
or dark as the browser is.
"""

from __future__ import annotations

from html import escape

from ..i18n import _, current

_PAGE = """\
<!doctype html>
<html lang="{lang}"><head><meta charset="utf-8"><title>TensorBoard</title>{head}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px/1.5 system-ui, sans-serif; }}
main {{ margin: 3rem auto; max-width: 60rem; padding: 0 1rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
</style></head>
<body><main>{body}</main></body></html>
"""


def starting() -> str:
    """Looks again each second, by itself."""
    return _page(
        f'<p role="status">{escape(_("TensorBoard is starting …"))}</p>',
        '<meta http-equiv="refresh" content="1">',
    )


def failed(detail: str) -> str:
    """What went wrong, with a way to try again."""
    first, _newline, rest = detail.partition("\n")
    more = f"<pre>{escape(rest)}</pre>" if rest else ""
    again = escape(_("Try again"))
    return _page(f'<p role="alert">{escape(first)}</p>{more}<p><a href="">{again}</a></p>')


def _page(body: str, head: str = "") -> str:
    return _PAGE.format(lang=current().replace("_", "-"), head=head, body=body)
