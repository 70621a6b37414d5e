"""Claims made ready and put away, with the journal's keeper beside, through everything that goes wrong."""

from collections.abc import Mapping

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.claims.answer_task import AT_ONCE, REFUSED_MAX
from nodeagent.components.claims.reconcile import POLL_INTERVAL_SECONDS
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimStanding
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import CdiSpecsWritten, ClaimPrepared
from nodeagent.model.health import HealthReport
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.ports import PodListing
from tests.component.claims.harness import ONE, World, api
from tests.support.claims import POD, make_claim, make_reference, make_result
from tests.support.gpus import gpu_uuid
from tests.unit.components.claims.test_prepare import cuttable

pytestmark = pytest.mark.virtual_time


async def test_a_claim_is_durable_and_described_before_it_is_answered(world: World) -> None:
    """The same again gives the same answer, by the journal alone."""
    api(world)
    async with world.running():
        with world.bus.listen(ClaimPrepared, client="test") as facts:
            assert await world.prepare() == {"claim-1": ONE}
            fact = await facts.__anext__()
        assert (fact.value.claim, fact.value.devices, fact.value.pods) == ("ns/c1", ("gpu-0",), (POD,))
        assert b'"type":"prepared"' in (world.store.current or b"")
        assert [each.uuid for each in world.specs.files["claim-1"]] == [gpu_uuid(0)]
        assert world.api is not None
        asked = world.api.asked
        assert await world.prepare() == {"claim-1": ONE}
        assert world.api.asked == asked
        assert world.codes == []


async def test_others_hear_of_a_claim_when_it_is_answered(world: World) -> None:
    """A pod waits for the answer, and not for what others make of it; the journal holds it before."""
    api(world)
    async with world.running():
        assert await world.claims.prepare([make_reference()]) == {"claim-1": ONE}
        assert world.prepared == {}
        assert b'"type":"prepared"' in (world.store.current or b"")
        await anyio.lowlevel.checkpoint()
        assert list(world.prepared) == ["claim-1"]


async def test_others_hear_of_a_claim_whose_specification_could_be_written_in_the_end(world: World) -> None:
    """The record was ready before that; the next question is the one that makes the devices usable."""
    api(world)
    async with world.running():
        with world.bus.listen(ClaimPrepared, client="test") as facts:
            world.specs.broken = "no space left"
            assert await world.prepare() == {"claim-1": "no space left"}
            world.specs.broken = ""
            assert await world.prepare() == {"claim-1": ONE}
            assert (await facts.__anext__()).value.claim == "ns/c1"


async def test_each_claim_of_a_call_has_an_answer_of_its_own(world: World) -> None:
    """One that cannot be had keeps no other from being made ready; a uid that is named twice is one claim."""
    api(world)
    async with world.running():
        references = (
            make_reference(),
            make_reference("gone", "gone"),
            make_reference(),
            make_reference("claim-2", "c2"),
        )
        answers = await world.prepare(*references)
        assert (answers["claim-1"], answers["gone"]) == (ONE, "there is no claim ns/gone (any more)")
        assert sorted(world.prepared) == ["claim-1", "claim-2"]
        assert await world.unprepare(*references) == {"claim-1": "", "gone": "", "claim-2": ""}
        assert (world.prepared, world.specs.files, world.codes) == ({}, {}, [])


async def test_two_questions_about_one_claim_are_one_claim(world: World) -> None:
    """The kubelet asks again while it is still being answered; the second waits for what the first has found out."""
    api(world)
    assert world.api is not None
    world.api.delay_seconds = 0.1
    answers = []

    async def ask() -> None:
        answers.append(await world.prepare())

    async with world.running():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert (answers, world.api.asked) == ([{"claim-1": ONE}] * 2, 1)


async def test_a_device_of_another_claim_is_not_given_a_second_time(world: World) -> None:
    """Also when both come at once."""
    assert world.api is not None
    world.api.delay_seconds = 0.1
    world.api.put(make_claim(make_result()), make_claim(make_result(), uid="claim-2", name="c2"))
    async with world.running():
        answers = await world.prepare(make_reference(), make_reference("claim-2", "c2"))
        refused = [each for each in answers.values() if isinstance(each, str)]
        assert len(refused) == 1
        assert "requested device gpu-0 is already allocated to different claim" in refused[0]
        assert world.codes == ["claim-refused"]


async def test_without_api_server_what_is_prepared_stays_and_what_is_new_waits(world: World) -> None:
    """And says what it waits for; a claim is put away without it too."""
    api(world)
    assert world.api is not None
    async with world.running():
        await world.prepare()
        world.api.broken = "cannot read: 10.0.0.1 does not answer"
        assert await world.prepare() == {"claim-1": ONE}
        answer = (await world.prepare(make_reference("claim-2", "c2")))["claim-2"]
        assert answer == "claim ns/c2 must be read before it is prepared: cannot read: 10.0.0.1 does not answer"
        assert await world.unprepare() == {"claim-1": ""}
    assert world.api.learned == 1, "before the first claim, so that none waits for it"
    async with world.running():
        await anyio.wait_all_tasks_blocked()
    assert world.api.learned == 2, "an API server that is away keeps nothing from starting"
    world.api = None
    async with world.running():
        assert world.codes == ["claims-without-api"]
        assert "no way to it" in str(await world.prepare())


async def test_a_journal_that_cannot_be_written_refuses_and_changes_nothing(world: World) -> None:
    """Neither for one that is new nor for one that ends."""
    api(world)
    async with world.running():
        world.store.failure = "No space left on device"
        assert "No space left" in str(await world.prepare())
        assert (world.prepared, world.specs.files) == ({}, {})
        world.store.failure = ""
        await anyio.sleep(2)
        await world.prepare()
        world.store.failure = "No space left on device"
        assert "cannot be put away" in (await world.unprepare())["claim-1"]
        assert sorted(world.prepared) == ["claim-1"]


async def test_an_agent_that_starts_again_knows_its_claims_and_describes_them_anew(world: World) -> None:
    """A reboot has wiped what was written for containers; the API server need not be there."""
    api(world)
    async with world.running():
        await world.prepare()
    world.specs.files.clear()
    assert world.api is not None
    world.api.broken = "away"
    async with world.running():
        await anyio.sleep(0.1)
        assert sorted(world.specs.files) == ["claim-1"]
        world.specs.files.clear()
        world.bus.publish_fact(CdiSpecsWritten(written=(), removed=(), generation=1), source="test")
        await anyio.sleep(0.1)
        assert sorted(world.specs.files) == ["claim-1"]
        world.specs.files.clear()
        assert await world.prepare() == {"claim-1": ONE}
        assert sorted(world.specs.files) == ["claim-1"]


async def test_one_that_cannot_be_described_at_the_start_does_not_keep_the_others_from_it(world: World) -> None:
    """It is told when the kubelet asks, and described as soon as it can be."""
    api(world)
    async with world.running():
        await world.prepare()
    world.specs.broken = "the GPU is gone"
    world.specs.files.clear()
    async with world.running():
        await anyio.sleep(0.1)
        assert await world.prepare() == {"claim-1": "the GPU is gone"}
        await anyio.sleep(POLL_INTERVAL_SECONDS + 1)
        world.specs.broken = ""
        await anyio.sleep(POLL_INTERVAL_SECONDS)
        assert sorted(world.specs.files) == ["claim-1"]


async def test_who_comes_after_the_end_is_turned_away_unless_a_pod_is_alive(world: World) -> None:
    """Whether or not it had been prepared before it was put away."""
    api(world)
    assert world.api is not None
    async with world.running():
        await world.prepare()
        await world.unprepare(make_reference(), make_reference("claim-2", "c2"))
        for reference in (make_reference(), make_reference("claim-2", "c2")):
            (answer,) = (await world.prepare(reference)).values()
            assert "was put away after its last pod, and none that it is reserved for is alive" in answer
        world.api.alive.add(POD.uid)
        assert await world.prepare() == {"claim-1": ONE}
    world.api.alive.clear()
    other = PodIdentity(namespace="ns", name="next", uid="pod-2")
    world.api.put(make_claim(make_result("gpu-1"), uid="claim-2", name="c2", pods=(POD, other)))
    async with world.running():
        await world.unprepare()
        assert "was put away" in str(await world.prepare())
        assert not isinstance((await world.prepare(make_reference("claim-2", "c2")))["claim-2"], str)


async def test_who_was_refused_and_put_away_is_forgotten_by_a_restart_and_nothing_is_lost_by_that(world: World) -> None:
    """What was told of it is told again if it is asked for again; what is made ready for nobody goes by itself."""
    api(world)
    assert world.api is not None
    lost = tuple(replace(gpu, lost="it hangs") for gpu in world.inventory.gpus)
    world.inventory, whole = replace(world.inventory, gpus=lost), world.inventory
    async with world.running():
        refusal = await world.prepare()
        assert refusal == {"claim-1": "device gpu-0 is lost: it hangs"}
        assert world.codes == ["claim-refused"]
        assert await world.unprepare() == {"claim-1": ""}
        assert world.codes == []
        assert "was put away" in str(await world.prepare())
        await world.unprepare()
    async with world.running():
        assert world.codes == []
        assert await world.prepare() == refusal
        assert world.codes == ["claim-refused"]
        await world.unprepare()
    world.inventory = whole
    world.kubelet.listing = PodListing()
    world.api.put(make_claim(make_result(), uid="claim-3", name="c3"))
    async with world.running():
        assert await world.prepare() == {"claim-1": ONE}
        (other,) = (await world.prepare(make_reference("claim-3", "c3"))).values()
        assert "is already allocated to different claim claim-1" in str(other)
        del world.api.claims["c1"]
        await anyio.sleep(130)
        assert world.prepared == {}
        (other,) = (await world.prepare(make_reference("claim-3", "c3"))).values()
        assert not isinstance(other, str)


async def test_of_those_who_came_and_went_without_being_prepared_the_newest_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same is true of reasons: neither grows with what the kubelet asks."""
    monkeypatch.setattr("nodeagent.components.claims.component.PASSING_MAX", 2)
    monkeypatch.setattr("nodeagent.components.claims.answer_task.REFUSED_MAX", 2)
    api(world)
    async with world.running():
        await world.unprepare(make_reference())
        await world.unprepare(make_reference("b"), make_reference("c"))
        assert await world.prepare() == {"claim-1": ONE}
        await world.prepare(*(make_reference(f"u{number}", f"n{number}") for number in range(5)))
        (condition,) = [one for one in world.conditions.all_set() if one.code == "claim-refused"][:1]
        assert condition is not None
        assert len([one for one in world.conditions.all_set() if one.code == "claim-refused"]) == 2


async def test_a_claim_waits_for_an_agent_that_has_just_started(world: World) -> None:
    """The kubelet would ask again after a minute and more; there is an end to it all the same."""
    api(world)
    async with world.keeping(), world.serving():
        answers: dict[str, object] = {}

        async def ask() -> None:
            answers.update(await world.prepare())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.sleep(5)
            assert not answers
            world.tell()
        assert answers == {"claim-1": ONE}
    dark = World(world.clock)
    api(dark)
    async with dark.keeping(), dark.serving():
        assert await dark.prepare() == {"claim-1": "the GPUs of this node are not known yet: see `nodeagent status`"}
    async with dark.serving():
        dark.tell()
        assert "journal" in str(await dark.prepare())


async def test_what_takes_too_long_is_answered_before_the_kubelet_gives_up(world: World) -> None:
    """And goes on from where it was at the next try."""
    api(world)
    assert world.api is not None
    world.api.delay_seconds = 1000.0
    async with world.running():
        began = anyio.current_time()
        answers = await world.prepare()
        assert answers == {"claim-1": "it is not ready after 40 s; the next try goes on from here"}
        assert anyio.current_time() - began < 45


async def test_of_many_claims_some_are_read_at_once_and_all_are_answered_in_time(world: World) -> None:
    """A thousand connections would be opened otherwise; those whose turn never came are answered as late, too."""
    assert world.api is not None
    claims = [(f"claim-{number}", f"c{number}") for number in range(3 * AT_ONCE)]
    world.api.put(*(make_claim(make_result(is_admin=True), uid=uid, name=name) for uid, name in claims))
    references = [make_reference(uid, name) for uid, name in claims]
    async with world.running():
        world.api.delay_seconds = 1.0
        answers = await world.prepare(*references)
        assert {type(answer) for answer in answers.values()} == {tuple}
        assert world.api.reading_most == AT_ONCE
        await world.unprepare(*references)
        world.api.delay_seconds = 1000.0
        began = anyio.current_time()
        answers = await world.prepare(*references)
        assert set(answers.values()) == {"it is not ready after 40 s; the next try goes on from here"}
        assert len(answers) == len(claims)
        assert anyio.current_time() - began < 45


async def test_of_many_refused_claims_conditions_are_told_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of conditions is told with all that there are: once for each claim would take the square of it."""
    told: list[int] = []
    replace_all = world.conditions.replace

    def count(code: str, details: Mapping[str, str]) -> None:
        told.append(len(details))
        replace_all(code, details)

    async with world.running():
        monkeypatch.setattr(world.conditions, "replace", count)
        references = [make_reference(f"claim-{number}", f"c{number}") for number in range(2 * REFUSED_MAX)]
        assert all("there is no" in str(answer) for answer in (await world.prepare(*references)).values())
        await world.unprepare(*references)
    assert told == [REFUSED_MAX, 0]


async def test_what_takes_too_long_to_be_put_away_is_kept(world: World) -> None:
    """The kubelet asks again, and then it goes on from there."""
    api(world)
    async with world.running():
        await world.prepare()
        world.specs.hangs = True
        answers = await world.unprepare()
        assert answers == {"claim-1": "cannot be put away within 40 s; the next try goes on from here"}
        assert list(world.prepared) == ["claim-1"]
        world.specs.hangs = False
        assert await world.unprepare() == {"claim-1": ""}


async def test_before_all_is_known_nothing_is_told_of_devices(world: World) -> None:
    """What comes first changes nothing; a claim that is still being made is not described at the start."""
    world.inventory = replace(world.inventory, gpus=(replace(cuttable(0), minor=0),))
    assert world.api is not None
    world.api.put(make_claim(make_result("gpu-0-mig-1g10gb-19-2")))
    world.partitions.broken = "the driver refuses"
    async with world.keeping(), world.serving():
        world.bus.publish_state(HealthReport(generation=1), source="test")
        await anyio.sleep(0.1)
        assert await world.claims.wait_health(None) == ()
        world.tell()
        assert await world.prepare() == {"claim-1": "the driver refuses"}
    async with world.running():
        await anyio.sleep(0.1)
        assert world.specs.files == {}


async def test_health_is_told_when_it_changes(world: World) -> None:
    """Of the devices behind the door."""
    async with world.running():
        known = await world.claims.wait_health(())
        assert [each.device for each in known] == [f"gpu-{index}" for index in range(4)]
        with anyio.move_on_after(100) as waiting:
            await world.claims.wait_health(known)
        assert waiting.cancelled_caught


async def test_a_driver_that_cannot_be_served_is_said_to_be_so_and_tried_again(world: World) -> None:
    tries = 0

    async def serve(driver: object, report: object, opened: object) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise NodeagentError("cannot listen on /dra.sock: no space")
        await World._serve(world, driver, report, opened)  # type: ignore[arg-type]

    world.serve = serve
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, world)
        await anyio.sleep(1)
        standing = world.bus.latest(ClaimStanding)
        assert standing is not None
        assert (standing.value.registered, standing.value.last_error) == (False, "cannot listen on /dra.sock: no space")
        assert world.codes == ["claims-not-registered"]
        await anyio.sleep(10)
        assert (tries, world.codes) == (3, [])
        tasks.cancel_scope.cancel()


async def _run(world: World) -> None:
    async with world.running():
        await anyio.sleep_forever()


def test_what_a_prepared_claim_is_called() -> None:
    claim = PreparedClaim(uid="u", namespace="ns", name="c", devices=(), since_seconds=0.0)
    assert claim.describe() == "ns/c"
