"""The kubelet: the device plugin, plugin registration and pod resources interfaces, over unix sockets.

All imports of gRPC and protobuf stay in this package; above the package there are only values of the model.
"""
