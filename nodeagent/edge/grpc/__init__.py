"""gRPC by grpclib, in bounds: a server and a client for unix sockets with arbitrary peers.

`connection` is a connection of either end, `calls` the form of services and requests, `serving` answers a caller,
`server` owns the socket and all callers, `caller` asks.

grpclib's gaps are closed here, without a copied line (docs/adr/0009-grpclib-in-bounds.md): the size of a request, the
number of connections, unknown frames, an Allocate whose caller leaves, and a status for each kind of malformed
message.
"""
