"""Metadata files of claims, read and judged by the Go library that Kubernetes has for the programs in containers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodeagent.components.claims.metadata import VERSIONS, list_requests, locate_in_container
from nodeagent.components.claims.prepare import with_uuids
from nodeagent.model.ids import MigUuid
from tests.integration.cluster.making.plan import BUILD_FLAGS, GO_ENVIRONMENT
from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.support.claims import DRIVER, make_result
from tests.unit.components.claims.test_metadata import SHARE, prepare, read, render

SOURCE = Path(__file__).parent / "metadata_reader"
MIG_DEVICE = "gpu-1-mig-1g10gb-19-2"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(BUILD_SECONDS)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, with a question a line and an answer a line."""
    program = tmp_path_factory.mktemp("reader") / "reader"
    build = ("nice", "-n", "10", "go", "build", *BUILD_FLAGS, "-o", str(program), ".")
    subprocess.run(build, cwd=SOURCE, env={**os.environ, **GO_ENVIRONMENT}, check=True)
    return program


def ask(reader: Path, *questions: dict[str, str]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run([str(reader)], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("template", ["", "gpus"])
def test_the_library_reads_what_is_written_where_it_looks(reader: Path, template: str) -> None:
    """Every kind of device, in each version: valid, without loss, and at the path that the library makes of names."""
    claim = prepare(
        make_result("gpu-0", "whole"),
        make_result(MIG_DEVICE, "part/small"),
        make_result("gpu-2", "share", **SHARE),
        template=template,
    )
    claim = with_uuids(claim, {MIG_DEVICE: MigUuid("MIG-new")})
    for request in list_requests(claim):
        content = render(claim, request).decode()
        names = {"Driver": DRIVER, "Claim": claim.name, "PodClaim": template, "Request": request}
        streams = [content, *content.splitlines()]
        answers = ask(reader, *({**names, "Content": stream} for stream in streams))
        assert [one["Version"] for one in answers] == [VERSIONS[0], *VERSIONS]
        (written, _) = read(content.encode())
        for one in answers:
            assert (one["Error"], one["Invalid"]) == ("", "")
            assert one["Path"] == locate_in_container(claim, request, DRIVER)
            # The library answers in the newest version, whichever it has read.
            assert one["Metadata"] == written


def test_the_library_refuses_what_is_none(reader: Path) -> None:
    """So the test above sees what is wrong."""
    content = render(prepare(make_result()), "gpu").decode()
    names = {"Driver": DRIVER, "Claim": "c1", "PodClaim": "", "Request": "gpu"}
    torn, unknown, nameless = ask(
        reader,
        {**names, "Content": content[:40]},
        {**names, "Content": content.replace("v1beta1", "v9").replace("v1alpha1", "v9")},
        {**names, "Content": content.replace(f'"driver":"{DRIVER}"', '"driver":""')},
    )
    assert torn["Error"]
    assert "unknown versions" in unknown["Error"]
    assert "driver" in nameless["Invalid"]
