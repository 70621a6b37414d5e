"""Posts a JSON document to a URL of the configuration.

Owns the deadline, the trust in the server, and the token, which is read anew for each post and repeated to nobody.
Refuses redirects, which would carry the token elsewhere, and proxies of the environment.
"""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct

from nodeagent import __version__
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.errors import WorkerError
from nodeagent.edge.http.errors import WebhookRefused

_TROUBLE = (aiohttp.ClientError, OSError, ValueError, WorkerError)
_DONE = range(200, 300)


class Webhook(Struct, frozen=True):
    """A URL, and how to speak with its server."""

    url: str
    token_file: Path | None = None
    """A bearer token; `None` for a server that asks for none."""
    ca_file: Path | None = None
    """The only authorities trusted; `None` for those of the system."""
    timeout_seconds: float = 30.0

    @property
    def host(self) -> str:
        """The server, for people: the rest of the URL may have a secret."""
        return urlsplit(self.url).netloc


async def post_document(webhook: Webhook, document: Mapping[str, object]) -> None:
    """Post the document.

    Raises:
        WebhookRefused: The server has not answered, or with no 2xx.
    """
    timeout = aiohttp.ClientTimeout(total=webhook.timeout_seconds)
    try:
        headers, trust = await _read_files(webhook)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), timeout=timeout) as session,
            session.post(webhook.url, data=json.dumps(document), headers=headers, allow_redirects=False) as answer,
        ):
            status, reason = answer.status, answer.reason
    except TimeoutError as error:
        raise WebhookRefused(webhook.host, f"no answer within {webhook.timeout_seconds:g} s") from error
    except _TROUBLE as error:
        raise WebhookRefused(webhook.host, str(error).replace(webhook.url, webhook.host)) from error
    if status not in _DONE:
        raise WebhookRefused(webhook.host, f"the answer is {status} {reason}, and only 2xx is a yes")


async def _read_files(webhook: Webhook) -> tuple[dict[str, str], ssl.SSLContext]:
    def read() -> tuple[str, ssl.SSLContext]:
        token = webhook.token_file.read_text(encoding="ascii").strip() if webhook.token_file is not None else ""
        return token, ssl.create_default_context(cafile=webhook.ca_file)

    worker = WorkerThread("webhook files")
    try:
        token, trust = await worker.run(read, timeout_seconds=webhook.timeout_seconds, what="reading token and CA file")
    finally:
        worker.close()
    headers = {"Content-Type": "application/json", "User-Agent": f"nodeagent/{__version__}"}
    return (headers | {"Authorization": f"Bearer {token}"} if token else headers), trust
