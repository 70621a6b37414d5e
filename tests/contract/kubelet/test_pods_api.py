"""The pods of a node by the kubelet's pods API, whichever kubelet `open_kubelet` opens."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager

import anyio

from nodeagent.edge.kubelet.errors import PodsUnavailable
from nodeagent.edge.kubelet.pods_api import KubeletPods
from nodeagent.model.ports import KubeletPod
from tests.support.wire.kubelets import NAMESPACE, PATIENCE_SECONDS, KubeletUnderTest, OpenKubelet

FIRST_MINOR = 37
Tables = AsyncGenerator[Mapping[str, KubeletPod], None]


@asynccontextmanager
async def opened_with_pods(open_kubelet: OpenKubelet) -> AsyncIterator[KubeletUnderTest]:
    """A kubelet of a version that serves the pods API."""
    async with open_kubelet() as kubelet:
        assert kubelet.minor >= FIRST_MINOR, f"kubelets before 1.{FIRST_MINOR} serve no pods API"
        yield kubelet


async def find_table(tables: Tables, is_wanted: Callable[[Mapping[str, KubeletPod]], bool]) -> Mapping[str, KubeletPod]:
    """The first table that fits; a real kubelet tells many things between."""
    with anyio.fail_after(PATIENCE_SECONDS):
        async for table in tables:
            if is_wanted(table):
                return table
    raise AssertionError("the kubelet has ended the stream")


def find_pod(table: Mapping[str, KubeletPod], name: str) -> KubeletPod | None:
    found = [pod for pod in table.values() if (pod.identity.namespace, pod.identity.name) == (NAMESPACE, name)]
    return found[0] if found else None


def is_running(table: Mapping[str, KubeletPod], name: str) -> bool:
    pod = find_pod(table, name)
    return pod is not None and pod.phase == "Running" and all("://" in each for each in pod.containers)


async def find_anew(pods: KubeletPods, name: str) -> KubeletPod | None:
    """A running pod by a new stream, which is refused until the kubelet knows all sources of pods."""
    while True:
        try:
            async with aclosing(pods.follow()) as tables:
                return find_pod(await find_table(tables, lambda table: is_running(table, name)), name)
        except PodsUnavailable:
            await anyio.sleep(0.1)


async def test_pods_are_told_as_they_come_and_go(open_kubelet: OpenKubelet) -> None:
    """Those that are there first, each with its uid; then one that starts, and the end of both."""
    async with opened_with_pods(open_kubelet) as kubelet:
        assert not await kubelet.run_pod("early", {})
        async with aclosing(KubeletPods(kubelet.pods_api_socket).follow()) as tables:
            first = await find_table(tables, lambda table: is_running(table, "early"))
            assert not await kubelet.run_pod("late", {})
            both = await find_table(tables, lambda table: is_running(table, "late"))
            early, late = find_pod(both, "early"), find_pod(both, "late")
            assert early == find_pod(first, "early")
            assert early is not None
            assert late is not None
            assert (both[early.identity.uid], both[late.identity.uid]) == (early, late)
            assert len(early.containers) == 1
            for pod in ("early", "late"):
                await kubelet.remove_pod(pod)
            await find_table(tables, lambda table: not {early.identity.uid, late.identity.uid} & table.keys())


async def test_a_kubelet_that_ends_ends_the_stream_and_the_next_tells_all(open_kubelet: OpenKubelet) -> None:
    """The socket is another one then; pods that went on running are told anew."""
    async with opened_with_pods(open_kubelet) as kubelet:
        assert not await kubelet.run_pod("steady", {})
        pods = KubeletPods(kubelet.pods_api_socket)
        async with aclosing(pods.follow()) as tables:
            before = find_pod(await find_table(tables, lambda table: is_running(table, "steady")), "steady")
            await kubelet.restart()
            with anyio.fail_after(PATIENCE_SECONDS):
                try:
                    async for _ in tables:
                        pass
                except PodsUnavailable:
                    pass  # a kubelet that is killed says no good-bye
        with anyio.fail_after(PATIENCE_SECONDS):
            after = await find_anew(pods, "steady")
        assert before is not None
        assert after is not None
        assert after.identity == before.identity
