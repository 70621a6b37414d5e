"""The kubelet: the device plugin, plugin registration and pod resources interfaces, over unix sockets.

All imports of gRPC and protobuf stay in this package; above the package there are only values of the model.

A kubelet that cannot be asked raises a `KubeletError` (the tree is in `errors`), a socket of ours that cannot be opened
`SocketUnavailable`.
"""
