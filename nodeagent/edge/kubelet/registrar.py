"""Registration of a plugin through the kubelet's own socket."""

from pathlib import Path
from typing import Final

from nodeagent.edge.grpc.caller import call_unary
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.edge.kubelet.errors import KubeletUnavailable, RegistrationRefused
from nodeagent.edge.kubelet.plugin_server import API_VERSION, render_options
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import RegisterRequest
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import PluginOptions

METHOD: Final = "/v1beta1.Registration/Register"
REGISTER_SECONDS: Final = 15.0
"""The kubelet answers only after dialling back, with a limit of 10 seconds."""


async def register_plugin(kubelet_socket: Path, resource: ResourceName, endpoint: str, options: PluginOptions) -> None:
    """Register at the kubelet that `endpoint`, a file beside the kubelet's socket, serves the resource.

    The server must answer already: the kubelet asks the server for the options before answering the registration.

    Raises:
        KubeletUnavailable: no process answers at the socket.
        RegistrationRefused: the kubelet says no, with a reason.
    """
    attempt = f"register {resource}"
    request = RegisterRequest(
        version=API_VERSION, endpoint=endpoint, resource_name=resource, options=render_options(options)
    )
    try:
        await call_unary(kubelet_socket, METHOD, request.SerializeToString(), timeout_seconds=REGISTER_SECONDS)
    except AnswerRefused as error:
        raise RegistrationRefused(resource, str(kubelet_socket), str(error)) from error
    except TimeoutError as error:
        reason = f"no answer within {REGISTER_SECONDS:g} s"
        raise KubeletUnavailable(attempt, str(kubelet_socket), reason) from error
    except (AnswerBroken, OSError) as error:
        raise KubeletUnavailable(attempt, str(kubelet_socket), str(error)) from error
