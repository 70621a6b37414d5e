"""The kubelet's wire formats: `.proto` files of the agent, and code generated from the files by `make generate`."""
