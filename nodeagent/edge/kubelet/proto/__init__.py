"""The kubelet's wire formats: `.proto` files of the agent, and code generated from the files by `make generate`."""

from nodeagent.edge.grpc.slim_protobuf import postpone_pure_python

postpone_pure_python()
