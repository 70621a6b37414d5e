"""Node feature discovery's kind: of it, what the API server needs to know."""

from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.processes import wait_until

GROUP = "nfd.k8s-sigs.io"
CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"nodefeatures.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def locate_features(namespace: str) -> str:
    """The path of the collection."""
    return f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/nodefeatures"


def install(cluster: Cluster, namespace: str) -> None:
    """Have the kind served."""
    cluster.api.post(DEFINITIONS, CRD)
    wait_until(
        "the kind NodeFeature to be served",
        lambda: None if is_served(cluster, namespace) else "not served",
        timeout_seconds=30,
    )


def is_served(cluster: Cluster, namespace: str) -> bool:
    try:
        return cluster.api.find(locate_features(namespace)) is not None
    except ApiRefused:  # its storage is only being made
        return False
