"""The kubelet's wire formats: `.proto` files of ours, and the code generated from them by `make generate`."""
