"""Wire format of the service: the agent's own `.proto` file, and the code generated from it by `make generate`."""
