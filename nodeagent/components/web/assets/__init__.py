"""The page's style and script, and the policy that admits no others."""

import base64
import hashlib
from importlib.resources import files


def _read(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8").strip()


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


STYLE = _read("page.css")
SCRIPT = _read("live.js")

POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_hash(STYLE)}",
        f"script-src {_hash(SCRIPT)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: the style and the script of this very version, by their hashes, and no address elsewhere."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
