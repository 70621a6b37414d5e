"""How a call may end, by the names of gRPC."""

from grpclib.const import Status

__all__ = ["Status"]
