"""A real API server, for originals whose client speaks protobuf, which the stand-in does not; and a whole cluster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.integration.cluster.control import Cluster, remove_cluster, start_api_server, start_cluster
from tests.integration.cluster.layout import NODE_NAME, Layout
from tests.integration.cluster.lock import hold
from tests.integration.cluster.making.build import Programs, build_programs
from tests.integration.cluster.making.requirements import require_cluster_machine
from tests.integration.cluster.versions import Versions


@contextmanager
def real_api_server() -> Iterator[Cluster]:
    """An API server and nothing that changes its objects by itself.

    Raises:
        ClusterError: the machine lacks what it needs, Go fails to build a program, or a cluster is up there.
    """
    with _started(start_api_server) as cluster:
        yield cluster


@contextmanager
def real_cluster() -> Iterator[Cluster]:
    """A whole cluster of one node.

    Raises:
        ClusterError: as above.
    """
    with _started(start_cluster) as cluster:
        yield cluster


@contextmanager
def _started(start: Callable[[Layout, Programs], Cluster]) -> Iterator[Cluster]:
    """In the place of this checkout's cluster, whose remains `make bench` removes whatever ends it."""
    require_cluster_machine()
    programs, layout = build_programs(Versions.read(), say), Layout.of_checkout()
    with hold(layout):
        try:
            yield start(layout, programs)
        finally:
            remove_cluster(layout)


def say(text: str) -> None:
    """Progress, for people."""
    sys.stderr.write(f"{text}\n")


def write_node(cluster: Cluster) -> None:
    """A node that no kubelet keeps, in place of the one that was there."""
    cluster.api.delete(f"/api/v1/nodes/{NODE_NAME}")
    cluster.api.post("/api/v1/nodes", {"metadata": {"name": NODE_NAME}})
