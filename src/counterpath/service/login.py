"""The token: what is one, and the form in which a browser is given it."""

import html
import math
import string
from collections.abc import Mapping

from starlette.responses import HTMLResponse

from counterpath.utils.errors import InputError

LOGIN = "/login"
MAX_FORM = 4096
"""Bytes of a form with a token in it: far more than any token has."""
_LEAST_BITS = 128
"""What nobody guesses, at any rate of tries."""
_FEWEST_CHARACTERS = 8
"""Different ones in a token: of 32 random hexadecimal digits only one in ten million has fewer."""
_CLASSES = (string.digits, string.ascii_lowercase, string.ascii_uppercase, string.punctuation)
_HEX = frozenset(string.hexdigits)
_HOW = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Counterpath: sign in</title><style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0; display: grid; place-items: center; min-height: 100vh; }
form { width: min(22rem, calc(100vw - 2rem)); display: grid; gap: .75rem; }
h1 { font-size: 1.25rem; margin: 0; } p { margin: 0; }
input, button { font: inherit; padding: .5rem .75rem; border-radius: .375rem; border: 1px solid GrayText; }
button { background: #1d4ed8; color: #fff; border-color: #1d4ed8; cursor: pointer; }
:focus-visible { outline: 3px solid #1d4ed8; outline-offset: 2px; }
</style></head><body><main><form method="post" action="/login">
<h1>Counterpath</h1>
<p>This page has a token: who started the service knows it.</p>
{error}<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{next}">
<button>Sign in</button>
</form></main></body></html>
"""


def bits(token: str) -> float:
    """How many bits a token of its length has whose characters were drawn from the kinds of characters that it has."""
    given = set(token)
    if len(given) < _FEWEST_CHARACTERS:
        return float(len(given))
    pool = 16 if given <= _HEX else sum(len(each) for each in _CLASSES if given & set(each))
    return len(token) * math.log2(pool + len(given - set("".join(_CLASSES))))


def check_token(token: str | None) -> None:
    """Raise an error unless a token is hard to guess, or there is none."""
    if token is None:
        return
    if not token.strip():
        raise InputError(f"the token is empty; expected one that is hard to guess, or none. To make one: {_HOW}")
    if bits(token) < _LEAST_BITS:
        raise InputError(
            f"the token has {len(token)} characters, about {bits(token):.0f} bits; expected at least {_LEAST_BITS} "
            f"bits, so that nobody guesses it, or none for this machine only. To make one: {_HOW}"
        )


def form(path: str, error: str = "", *, status: int = 401, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """The page that asks for the token.

    Args:
        path: Where to go with it.
        error: What was wrong with the last one, if there was one.
        status: That of the response.
        headers: Those of the response.
    """
    said = f'<p role="alert">{html.escape(error)}</p>\n' if error else ""
    content = _PAGE.replace("{error}", said).replace("{next}", html.escape(path, quote=True))
    return HTMLResponse(content, status, dict(headers or {}) | {"cache-control": "no-store"})
