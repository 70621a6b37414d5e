"""The steps of a story of a cluster, and how often each is drawn."""

from collections.abc import Mapping
from random import Random
from typing import Final

from tests.chaos.extender.story import INDEX, UUID, ClusterStory, Json, Step


async def a_pod_comes(story: ClusterStory, chance: Random) -> None:
    story.create(chance)


async def a_pod_is_placed(story: ClusterStory, chance: Random) -> None:
    if story.waiting:
        await story.place(chance.choice(story.waiting), chance)


async def a_container_starts(story: ClusterStory, chance: Random) -> None:
    if story.unstarted:
        story.start(chance.choice(list(story.unstarted)))


async def an_agent_looks(story: ClusterStory, chance: Random) -> None:
    story.look(chance.choice(list(story.nodes.values())))


async def an_agent_is_down(story: ClusterStory, chance: Random) -> None:
    """It says nothing until the next calm, or until it is up again."""
    node = chance.choice(list(story.nodes.values()))
    node.is_down = not node.is_down


async def a_pod_finishes(story: ClusterStory, chance: Random) -> None:
    running = [name for name, pod in story.pods.items() if pod["metadata"]["uid"] in story.living]
    running = [name for name in running if name not in story.unstarted and name not in story.waiting]
    if running:
        name = chance.choice(running)
        story.change(name, status={"phase": "Succeeded"})
        if chance.random() < 0.5:
            story.server.drop("pods", name)


async def a_pod_is_deleted(story: ClusterStory, chance: Random) -> None:
    if story.pods:
        story.end(chance.choice(list(story.pods)))


async def a_size_is_set(story: ClusterStory, chance: Random) -> None:
    story.is_disturbed |= chance.choice(list(story.nodes.values())).resize(chance)


async def a_container_starts_unheard_of(story: ClusterStory, chance: Random) -> None:
    """The agent has been restarted, or its watch is late: it chooses by itself."""
    if story.unstarted:
        story.is_disturbed = True
        story.start(chance.choice(list(story.unstarted)), knows_pod=False)


async def an_author_writes_over_a_choice(story: ClusterStory, chance: Random) -> None:
    """On a pod that runs: the extender counts the node's word, and the author's only before the node says anything."""
    running = [pod["metadata"]["name"] for uid, pod in story.living.items() if _is_running(story, uid, pod)]
    if running:
        name = chance.choice(running)
        story.is_disturbed |= not story.find_node(name).has_told(story.pods[name]["metadata"]["uid"])
        story.annotate(name, {INDEX: str(chance.randrange(8)), UUID: ""})


def _is_running(story: ClusterStory, uid: str, pod: Json) -> bool:
    node = pod["spec"].get("nodeName")
    return node in story.nodes and uid in story.nodes[node].uids


async def watches_lag(story: ClusterStory, chance: Random) -> None:
    story.hold_watches(chance.randrange(1, 6))


async def watches_end(story: ClusterStory, _chance: Random) -> None:
    story.server.drop_watches()


async def the_api_server_refuses(story: ClusterStory, chance: Random) -> None:
    story.server.refuse.append(chance.choice((409, 500, 503)))


async def a_replica_is_killed(story: ClusterStory, chance: Random) -> None:
    """What it had in memory alone is gone with it."""
    await story.restart(chance)


async def the_api_server_is_restarted(story: ClusterStory, _chance: Random) -> None:
    await story.server.stop()
    await story.server.start()


STEPS: Final[Mapping[Step, int]] = {
    a_pod_comes: 30,
    a_pod_is_placed: 40,
    a_container_starts: 30,
    an_agent_looks: 30,
    an_agent_is_down: 3,
    a_pod_finishes: 8,
    a_pod_is_deleted: 4,
    a_size_is_set: 1,
    a_container_starts_unheard_of: 1,
    an_author_writes_over_a_choice: 5,
    watches_lag: 2,
    watches_end: 2,
    the_api_server_refuses: 4,
    a_replica_is_killed: 1,
    the_api_server_is_restarted: 1,
}
