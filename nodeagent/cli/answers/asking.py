"""A command's question to the running agent, with the settings of the command line."""

import argparse
from collections.abc import Iterable
from typing import Final, TypeVar

from nodeagent.cli.agent.settings import load_for_looking
from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.table import read_environment
from nodeagent.components.web.api.records import DeviceClassRecord, GpusRecord
from nodeagent.model.gpu import Gpu
from nodeagent.model.orders import Command, Order
from nodeagent.rules.ids import render_index

C = TypeVar("C", bound=Command)
T = TypeVar("T")

API: Final = "/api/v1"


def find_asked(arguments: argparse.Namespace) -> AgentClient:
    """The agent that the command line asks, for a single question."""
    environ = read_environment(arguments)
    return find_agent(load_for_looking(arguments, environ), environ)


def ask(arguments: argparse.Namespace, path: str, kind: type[T]) -> tuple[AgentClient, T]:
    """The answering agent, and its answer at a path below the API's."""
    agent = find_asked(arguments)
    return agent, agent.read(f"{API}/{path}", kind)


def give(arguments: argparse.Namespace, order: Order[C], command: C) -> str:
    """Have the agent that the command line asks carry an order out; the report in a sentence."""
    environ = read_environment(arguments)
    return find_agent(load_for_looking(arguments, environ), environ, change=True).give(order, command)


def name_devices(gpus: Iterable[Gpu]) -> dict[str, str]:
    """`3` for a GPU and `3:0` for a MIG device, by UUID: the numbers of every command."""
    gpus = tuple(gpus)
    names = {str(gpu.uuid): render_index(gpu) for gpu in gpus}
    return names | {str(mig.uuid): render_index(gpu, mig) for gpu in gpus for mig in gpu.mig_devices}


def ask_class_devices(arguments: argparse.Namespace) -> dict[str, str]:
    """The names of devices of the configured classes, by id."""
    classes = ask(arguments, "devices", tuple[DeviceClassRecord, ...])[1]
    return {str(record.device.id): record.device.name for each in classes for record in each.devices}


def ask_device_names(arguments: argparse.Namespace) -> dict[str, str]:
    """The numbers of the agent's devices, by UUID."""
    return name_devices(record.gpu for record in ask(arguments, "gpus", GpusRecord)[1].gpus)
