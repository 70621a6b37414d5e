"""gRPC for the calls that pods wait for: the serving half of HTTP/2, as small as the kubelet's interfaces allow.

`frames` is bytes, `grpc_status` is gRPC's words, `http2` is one connection's state without any I/O,
`server` puts them on a unix socket.
`unary_call` is one call of our own without any I/O, `caller` makes it: loading a library for two questions would take
a tenth of the time from the agent's start to its registration.

Measured by a grpc-core client in another process, median of GetPreferredAllocation and Allocate of 4 of 8 devices:
1.43 ms on a server of grpclib, 0.67 ms on this one.
The pair may take 1 ms, with a durable write in it.
"""
