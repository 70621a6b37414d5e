"""What a driver of claims is asked by a kubelet, whichever one `open_claim_kubelet` opens."""

import anyio

from tests.support.waiting import wait_until
from tests.support.wire.claim_kubelets import OpenClaimKubelet, RecordingDriver, running_driver


async def test_a_claim_is_prepared_for_its_pod_and_put_away_after_it(open_claim_kubelet: OpenClaimKubelet) -> None:
    """Each question has the claim's namespace, name and uid; the driver is registered, and its health is watched."""
    driver = RecordingDriver()
    async with open_claim_kubelet() as kubelet, running_driver(kubelet, driver) as reports:
        await wait_until(lambda: reports[-1].registered)
        claim = await kubelet.make_claim("one")
        await kubelet.run_pod("pod-a", claim)
        assert (driver.prepared, driver.unprepared) == ([(claim,)], [])
        with anyio.fail_after(30):
            await driver.health_asked.wait()
        await kubelet.end_pod("pod-a")
        await wait_until(lambda: bool(driver.unprepared))
    assert (driver.prepared, driver.unprepared) == ([(claim,)], [(claim,)])


async def test_the_claims_of_a_pod_come_in_one_question(open_claim_kubelet: OpenClaimKubelet) -> None:
    driver = RecordingDriver()
    async with open_claim_kubelet() as kubelet, running_driver(kubelet, driver):
        one, two = await kubelet.make_claim("one"), await kubelet.make_claim("two")
        await kubelet.run_pod("pod-a", one, two)
        await kubelet.end_pod("pod-a")
        await wait_until(lambda: bool(driver.unprepared))
    (prepared,), (unprepared,) = driver.prepared, driver.unprepared
    assert {each.uid for each in prepared} == {each.uid for each in unprepared} == {one.uid, two.uid}


async def test_a_claim_of_two_pods_is_prepared_once(open_claim_kubelet: OpenClaimKubelet) -> None:
    """And put away when the last of them is gone."""
    driver = RecordingDriver()
    async with open_claim_kubelet() as kubelet, running_driver(kubelet, driver):
        claim = await kubelet.make_claim("one")
        await kubelet.run_pod("pod-a", claim)
        await kubelet.run_pod("pod-b", claim)
        await kubelet.end_pod("pod-a")
        assert (driver.prepared, driver.unprepared) == ([(claim,)], [])
        await kubelet.end_pod("pod-b")
        await wait_until(lambda: driver.unprepared == [(claim,)])


async def test_a_kubelet_that_starts_again_finds_the_driver(open_claim_kubelet: OpenClaimKubelet) -> None:
    """It asks nothing for the pods that run, and all of it for the next pod with their claim."""
    driver = RecordingDriver()
    async with open_claim_kubelet() as kubelet, running_driver(kubelet, driver):
        claim = await kubelet.make_claim("one")
        await kubelet.run_pod("pod-a", claim)
        await kubelet.restart()
        await kubelet.run_pod("pod-b", claim)
        assert driver.prepared == [(claim,), (claim,)]
        await kubelet.end_pod("pod-a")
        assert driver.unprepared == []
        await kubelet.end_pod("pod-b")
        await wait_until(lambda: driver.unprepared == [(claim,)])
