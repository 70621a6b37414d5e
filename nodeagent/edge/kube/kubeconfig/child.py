"""The child process that reads a kubeconfig with certificates, token files, programs and identity providers.

kubernetes_asyncio does the reading, and is loaded in the child alone: the 38 MB end with the child.
Owns the values handed over, the digests of files from before the reading, and the end of a token.
Refuses to live on: one question, one answer.
"""

import asyncio
import base64
import binascii
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_kube_config_from_dict
from msgspec.json import decode, encode

from nodeagent.core.children.child_setup import announce_step, claim_answers, die_with_parent
from nodeagent.core.children.frames import read_frames, write_frame
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded
from nodeagent.edge.kube.client_configuration import ClientConfiguration, Way
from nodeagent.edge.kube.kubeconfig.words import (
    FILE_BYTES_MAX,
    WORDS_BYTES_MAX,
    Question,
    Reading,
    Refusal,
    digest,
    digest_files,
)
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml

_MALFORMED = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError, OSError)
"""The exceptions of kubernetes_asyncio over malformed files, besides `ConfigException`."""
_NAMED = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
"""The keys for file names, by kind of entry."""


def main() -> None:
    """Answer the question."""
    die_with_parent()
    announce_step("kubeconfig")
    answers = claim_answers()
    number, payload = next(read_frames(0))
    # A token program inherits the process's input, and would wait for the end of the input.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    answer = encode(read_kubeconfig(decode(payload, type=Question)))
    write_frame(answers, number, answer, limit_bytes=WORDS_BYTES_MAX)


def read_kubeconfig(question: Question) -> Reading | Refusal:
    """The reading of the file by kubernetes_asyncio."""
    try:
        path = Path(question.path)
        content = read_bounded(path, limit_bytes=FILE_BYTES_MAX)
        document = parse_yaml(content)
        if not isinstance(document, dict):
            return Refusal("it is not a kubeconfig: no mapping")
        base = path.parent
        cluster, user = _find_in_context(document, "cluster"), _find_in_context(document, "user")
        digests = {question.path: digest(content)} | digest_files(_list_files(base, cluster=cluster, user=user))
        # The library resolves paths against the working directory, kubectl against the file's directory.
        os.chdir(base)
        found = Configuration()
        loading = load_kube_config_from_dict(document, client_configuration=found, temp_file_path=question.scratch)
        loader = asyncio.run(loading)
        if "server" not in cluster:
            return Refusal("the current context's cluster names no server")
        configuration = _take_values(found)
    except (ConfigException, YamlUnreadable, HostError, *_MALFORMED) as error:
        return Refusal(_describe(error))
    is_made = "exec" in user or "auth-provider" in user
    expires_at = _find_end(loader, configuration.authorization) if is_made else None
    return Reading(configuration, digests, time.time(), is_made, expires_at)


def _take_values(found: Any) -> ClientConfiguration:
    way = Way(
        server=found.host,
        authority=_read_pem(found.ssl_ca_cert),
        certificate=_read_pem(found.cert_file),
        key=_read_pem(found.key_file),
        is_verified=bool(found.verify_ssl),
        server_name=found.tls_server_name,
        proxy=found.proxy,
    )
    return ClientConfiguration(way, str(found.api_key.get("BearerToken", "")))


def _read_pem(path: str | None) -> bytes | None:
    return read_bounded(Path(path), limit_bytes=FILE_BYTES_MAX) if path else None


def _find_in_context(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The cluster or the user of the current context; empty for a malformed document, reported by the library."""
    context = _find_entry(document, "context", document.get("current-context"))
    return _find_entry(document, kind, context.get(kind))


def _find_entry(document: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
            found: Mapping[str, Any] = entry[kind]
            return found
    return {}


def _list_files(base: Path, **found: Mapping[str, Any]) -> Iterator[str]:
    for kind, values in found.items():
        yield from (str(base / values[key]) for key in _NAMED[kind] if isinstance(values.get(key), str))


def _find_end(loader: Any, authorization: str) -> float | None:
    """When a token ends: by the program's word, or by the token's own claim."""
    if hasattr(loader, "exec_plugin_expiry"):
        return float(loader.exec_plugin_expiry.timestamp())
    try:
        claims = authorization.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return float(end)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None  # not every token has claims


def _describe(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text and len(text) > 3 else f"it is not a valid file ({type(error).__name__} {text})".rstrip()


if __name__ == "__main__":
    main()
