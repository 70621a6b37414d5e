"""The chart's certificates by cert-manager: its own controllers make them, and a real kube-scheduler asks by them.

The controllers are those of its module, put together by `cert_manager/main.go`: no image of them can be pulled here.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.rules.fractions.published import ANNOTATION
from tests.deploy.chart import needs_helm
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.extender import RIGHTS, ExtenderUnderTest, create_node, drop_everything
from tests.integration.cluster.making.plan import BUILD_FLAGS, GO_ENVIRONMENT
from tests.integration.cluster.pods import PATH, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.runtimes.releases import BUILD_SECONDS, fetch_module
from tests.support.placement import eight
from tests.support.scheduling import publish

CERT_MANAGER = ("github.com/cert-manager/cert-manager", "1.20.0", "h1:czZamsFJ1YdKPhpv+SopJZN9t3W68vQBnFYUevSHGqY=")
SOURCE = Path(__file__).parent / "cert_manager"
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"

# Two minutes on two processors once its modules are there.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(BUILD_SECONDS)]


@pytest.fixture
def cert_manager(node: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The log of the controllers, which run beside the cluster with the rights of its administrator."""
    definitions = fetch_module(*CERT_MANAGER) / "deploy/crds"
    kinds = [str(file) for file in sorted(definitions.glob("cert-manager.io_*.yaml"))]
    files = [word for kind in kinds for word in ("-f", kind)]
    node.run("kubectl", "apply", "--server-side", *files)
    node.run("kubectl", "wait", "--for=condition=Established", *files)
    program, log = tmp_path / "controllers", tmp_path / "controllers.log"
    build = ("nice", "-n", "10", "go", "build", *BUILD_FLAGS, "-o", str(program), ".")
    subprocess.run(build, cwd=SOURCE, env={**os.environ, **GO_ENVIRONMENT}, check=True)
    with log.open("wb") as output:
        command = (str(program), str(node.layout.kubeconfig("admin")))
        controllers = subprocess.Popen(command, stdout=output, stderr=output)
    yield log
    controllers.terminate()
    status = controllers.wait(30)
    # The definitions go last: with them go the certificates of the chart, should it be there still.
    node.run("kubectl", "delete", *files)
    assert status == 0, log.read_text()[-2000:]


@needs_helm
def test_the_scheduler_asks_by_certificates_of_cert_manager(node: Cluster, pods: Pods, cert_manager: Path) -> None:
    """From an empty namespace to a pod that is placed; a certificate that is made anew is taken by all who run."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    extender = ExtenderUnderTest(node, tls_from="certManager")
    create_node(node, "api-00", {ANNOTATION: publish(eight())}, {CORE: "800", MEMORY: "1024"})
    try:
        extender.start()
        extender.wait_ready()
        extender.restart_scheduler()
        with pytest.raises(OSError, match=r"(?i)certificate required|closed|reset|EOF"):
            extender.open("/readyz", with_certificate=False)
        wait_placed(node, pods, "first")
        before = extender.install_chart()
        node.api.delete("/api/v1/namespaces/nodeagent/secrets/nodeagent-extender-server")
        renewed = extender.install_chart()
        changed = {name for name in before if before[name] != renewed[name]}
        assert changed == {"nodeagent-extender-server"}, cert_manager.read_text()[-2000:]
        extender.write_secrets(renewed)
        wait_placed(node, pods, "second")
    finally:
        extender.close()
        drop_everything(node, ("api-00",))


def wait_placed(node: Cluster, pods: Pods, name: str) -> None:
    """Create a pod that asks for half a GPU, and wait until the scheduler has bound it by the extender's choice."""
    pods.create(render_pod(name, limits={CORE: 50, MEMORY: 8}))

    def probe() -> str | None:
        found = node.api.get(f"{PATH}/{name}")
        return None if found["spec"].get("nodeName") == "api-00" else str(found["status"])

    wait_until(f"pod {name} to be placed", probe, timeout_seconds=60)
