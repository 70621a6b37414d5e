"""The contract of the kubelet's pods API on the real kubelet; kubelets before 1.37 serve none."""

import pytest

from tests.contract.kubelet.test_pods_api import *  # noqa: F403  the tests themselves
from tests.integration.test_device_plugin_contract import open_kubelet

__all__ = ["open_kubelet"]
pytestmark = pytest.mark.may_leak("worker threads that ask the API server linger idle")
