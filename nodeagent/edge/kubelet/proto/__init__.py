"""The kubelet's wire formats: `.proto` files of ours, and the code generated from them by `make generate`."""

from nodeagent.edge.grpc.slim_protobuf import postpone_pure_python

postpone_pure_python()
