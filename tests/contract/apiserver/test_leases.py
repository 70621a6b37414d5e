"""The Lease of the extender's replicas, with the agent's own writer."""

import pytest
from msgspec.structs import replace

from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.errors import ApiConflict, ApiNotFound
from nodeagent.edge.kube.lease import KubeLease, KubeSlots
from nodeagent.model.slots import Domain
from tests.fakes.repair_slots import Store
from tests.support.wire.api_servers import NAMESPACE, OpenApiServer, path_of


async def test_one_of_two_gets_the_lease(open_api_server: OpenApiServer) -> None:
    """Who writes at a version that is no longer there is refused, at the first writing as at each later one."""
    async with open_api_server() as server, server.client() as client:
        lease = KubeLease(client, NAMESPACE, server.new_name("lease"), SystemClock())
        assert await lease.read() is None
        first = await lease.write(None, "one", 15)
        with pytest.raises(ApiConflict):
            await lease.write(None, "two", 15)
        renewed = await lease.write(first, "one", 15)
        assert (renewed.holder, renewed.acquired, renewed.transitions) == ("one", first.acquired, 0)
        assert renewed.version != first.version
        with pytest.raises(ApiConflict):
            await lease.write(first, "two", 15)
        assert await lease.read() == renewed
        freed = await lease.write(renewed, "", 1)
        assert (await lease.write(freed, "two", 15)).transitions == 2


async def test_a_lease_of_somebody_else_can_be_taken(open_api_server: OpenApiServer) -> None:
    """One that was made without times or holder, as kubectl makes it, is written like any other."""
    async with open_api_server() as server, server.client() as client:
        name = server.new_name("lease")
        metadata = {"name": name, "namespace": NAMESPACE}
        document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        await server.add("leases", document | {"spec": {"holderIdentity": "one"}})
        lease = KubeLease(client, NAMESPACE, name, SystemClock())
        seen = await lease.read()
        assert seen is not None
        assert (seen.holder, seen.acquired, seen.seconds) == ("one", "", 0)
        assert (await lease.write(seen, "one", 15)).holder == "one"


async def test_times_have_parts_of_a_second(open_api_server: OpenApiServer) -> None:
    """A time in another form is a bad request."""
    async with open_api_server() as server:
        metadata = {"name": server.new_name("lease"), "namespace": NAMESPACE}
        document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        refused = await server.ask("POST", path_of("leases"), document | {"spec": {"renewTime": ""}})
        assert refused.refusal[:2] == (400, "BadRequest")
        made = await server.add("leases", document | {"spec": {"renewTime": "2026-01-01T00:00:00.250000Z"}})
        assert made["spec"]["renewTime"] == "2026-01-01T00:00:00.250000Z"


@pytest.mark.parametrize("is_stand_in", [False, True], ids=["the client", "its stand-in"])
async def test_a_slot_of_repairs_is_written_over_what_was_read(
    open_api_server: OpenApiServer, *, is_stand_in: bool
) -> None:
    """Of two takers one is refused; the breaker is written beside the holder, and annotations of others stay."""
    async with open_api_server() as server, server.client() as client:
        domain = Domain(key="rack", value=server.new_name("rack"), slots=1)
        name, missing = domain.name_slot(0), domain.name_slot(1)
        slots: KubeSlots
        if is_stand_in:
            slots = store = Store([domain])
            store.suspend(domain)
        else:
            slots = KubeSlots(client, NAMESPACE, SystemClock())
            metadata = {"name": name, "namespace": NAMESPACE, "annotations": {"nodeagent.io/repairs": "off"}}
            await server.add("leases", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
        free = await slots.read(name, 0)
        assert (free.holder, free.renewed, free.is_suspended) == ("", "", True)
        for attempt in (slots.read(missing, 1), slots.write(missing, free), slots.write_breaker(missing, free)):
            with pytest.raises(ApiNotFound):
                await attempt
        await slots.write(name, replace(free, holder="a/one/7/0", seconds=600.0))
        for attempt in (slots.write(name, replace(free, holder="b/one/1/0")), slots.write_breaker(name, free)):
            with pytest.raises(ApiConflict):
                await attempt
        held = await slots.read(name, 0)
        assert (held.holder, held.seconds, held.is_suspended) == ("a/one/7/0", 600.0, True)
        assert held.renewed
        await slots.write_breaker(name, replace(held, breaker="{}"))
        after = await slots.read(name, 0)
        assert after == replace(held, version=after.version, breaker="{}")
        await slots.write(name, replace(after, holder="", seconds=0.0, breaker="", is_suspended=False))
        freed = await slots.read(name, 0)
        assert (freed.holder, freed.seconds, freed.breaker, freed.is_suspended) == ("", 1.0, "{}", True)
        assert freed.version not in {free.version, held.version, after.version}
