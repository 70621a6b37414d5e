"""gRPC by grpclib, in bounds: a server and a client for unix sockets whose other end may be anything.

`connection` is one connection of either side, `calls` what a service says and is asked, `serving` answers one caller,
`server` owns the socket and all callers, `caller` asks.

What grpclib leaves open is closed here, without a line of it copied (docs/adr/0009-grpclib-in-bounds.md): the size of a
request, the number of connections, frames that it does not know, an Allocate whose caller leaves, and a status for each
kind of malformed message.
"""
