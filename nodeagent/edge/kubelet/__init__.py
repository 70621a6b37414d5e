"""The kubelet: its device plugin, plugin registration and pod resources interfaces, spoken over unix sockets.

Everything that imports gRPC or protobuf stays in here; above this package there are only values of the model.
"""
