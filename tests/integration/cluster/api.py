"""The API server as the tests see it: JSON requests in one user's name, no client library between.

Refusals and silence are different errors, because outage scenarios wait for the one and must not hide the other.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.cluster.errors import ApiRefused, ApiUnreachable
from tests.integration.cluster.layout import NODE_NAME

Json = dict[str, Any]
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
CLUSTER_TAINTS = "node.kubernetes.io/"  # the ones that the control plane sets and takes off by itself


class Api:
    """One user's view of the API server; with a client certificate, the API server's view of the kubelet."""

    def __init__(
        self,
        port: int,
        authority: Path,
        *,
        token: str | None = None,
        certificate: tuple[Path, Path] | None = None,
        timeout_seconds: float = 10,
    ) -> None:
        self._port, self._authority, self._certificate = port, authority, certificate
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_seconds = timeout_seconds

    def get(self, path: str, **query: str) -> Json:
        return self._json("GET", path + (f"?{urlencode(query)}" if query else ""))

    def read_text(self, path: str) -> str:
        return self._request("GET", path).decode()

    def post(self, path: str, document: Json) -> Json:
        return self._json("POST", path, document)

    def put(self, path: str, document: Json) -> Json:
        return self._json("PUT", path, document)

    def patch(self, path: str, document: Json | list[Json], *, kind: str = "merge") -> Json:
        return self._json("PATCH", path, document, PATCH_TYPES[kind])

    def delete(self, path: str, document: Json | None = None) -> None:
        try:
            self._json("DELETE", path, document)
        except ApiRefused as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def find(self, path: str) -> Json | None:
        try:
            return self.get(path)
        except ApiRefused as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def is_ready(self) -> bool:
        """Whether the server answers and has finished starting."""
        try:
            return self._request("GET", "/readyz") == b"ok"
        except (ApiUnreachable, ApiRefused):
            return False

    def read_node(self, name: str = NODE_NAME) -> Json:
        return self.get(f"/api/v1/nodes/{name}")

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._authority))
        if self._certificate is not None:
            context.load_cert_chain(*self._certificate)
        return context

    def _json(self, method: str, path: str, document: object = None, content_type: str = "application/json") -> Json:
        answer = json.loads(self._request(method, path, document, content_type))
        assert isinstance(answer, dict), f"{method} {path} answered {type(answer)}"
        return answer

    def _request(
        self, method: str, path: str, document: object = None, content_type: str = "application/json"
    ) -> bytes:
        body = None if document is None else json.dumps(document)
        headers = {**self._headers, "Content-Type": content_type, "Accept": "application/json"}
        try:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=self._timeout_seconds, context=self._trust()
            )
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                status, content = response.status, response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachable(method, path, str(error) or type(error).__name__) from error
        if status >= http.client.BAD_REQUEST:
            raise ApiRefused(method, path, status, _message(content))
        return content


def is_node_ready(node: Mapping[str, Any]) -> bool:
    """Whether the kubelet reports Ready and the control plane has taken its own taints off."""
    conditions = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions", [])}
    taints = (each["key"] for each in node["spec"].get("taints", []))
    return conditions.get("Ready") == "True" and not any(key.startswith(CLUSTER_TAINTS) for key in taints)


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()
