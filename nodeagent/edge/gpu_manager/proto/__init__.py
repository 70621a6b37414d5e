"""Wire format of the service: the agent's own `.proto` file, and the code generated from it by `make generate`."""

from nodeagent.edge.grpc.slim_protobuf import postpone_pure_python

postpone_pure_python()
