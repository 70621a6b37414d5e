"""A document posted to a server with a certificate: what is sent, and what each answer comes to."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from msgspec.structs import replace

from nodeagent.edge.http.errors import WebhookRefused
from nodeagent.edge.http.webhook import Webhook, post_document
from tests.component.http.certificates import Authority

pytestmark = pytest.mark.may_block("openssl makes the certificates")

DOCUMENT = {"request": "reboot", "node": "node-1"}


class Hook:
    """The server: answers with `status`, or not at all, and keeps what came."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook, self.status = webhook, 204
        self.asked: list[tuple[str, str, object]] = []

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append((request.path_qs, request.headers.get("Authorization", ""), await request.json()))
        if not self.status:
            await anyio.sleep_forever()
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})

    async def refusal(self, webhook: Webhook) -> str:
        with pytest.raises(WebhookRefused) as refused:
            await post_document(webhook, DOCUMENT)
        return str(refused.value)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Hook]:
    """The server with its certificate, for the length of the block."""
    authority = Authority(tmp_path)
    mine, context = authority.issue("hook"), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(mine.cert, mine.key)
    (tmp_path / "token").write_text("s3cret\n")
    application = web.Application()
    made = Hook(Webhook("", tmp_path / "token", authority.root.cert))
    application.router.add_post("/{path:.*}", made.serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    made.webhook = replace(made.webhook, url=f"https://127.0.0.1:{runner.addresses[0][1]}/reboot?key=h1dden")
    try:
        yield made
    finally:
        await runner.cleanup()


async def test_the_document_is_posted_with_the_token_and_whatever_is_no_2xx_is_a_refusal(tmp_path: Path) -> None:
    """A redirect is not followed, and a server that says nothing is given up: one request each."""
    async with serving(tmp_path) as hook:
        await post_document(hook.webhook, DOCUMENT)
        assert hook.asked == [("/reboot?key=h1dden", "Bearer s3cret", DOCUMENT)]
        await post_document(replace(hook.webhook, token_file=None), DOCUMENT)
        assert hook.asked[1][1] == ""
        for status, said in (
            (302, "the answer is 302 Found, and only 2xx is a yes"),
            (503, "the answer is 503 Service Unavailable, and only 2xx is a yes"),
            (0, "no answer within 0.3 s"),
        ):
            hook.status = status
            webhook = replace(hook.webhook, timeout_seconds=30.0 if status else 0.3)
            assert await hook.refusal(webhook) == f"{webhook.host} has not taken the request: {said}"
        assert len(hook.asked) == 5


async def test_a_server_that_is_not_trusted_gets_no_token(tmp_path: Path) -> None:
    """Nor does anybody else: neither token nor URL is in the message."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    async with serving(tmp_path) as hook:
        said = await hook.refusal(replace(hook.webhook, ca_file=other.root.cert))
        assert "certificate" in said
        missing = await hook.refusal(replace(hook.webhook, token_file=tmp_path / "none"))
        assert f"No such file or directory: '{tmp_path / 'none'}'" in missing
        assert hook.asked == []
        assert not any(secret in said + missing for secret in ("s3cret", "h1dden"))
