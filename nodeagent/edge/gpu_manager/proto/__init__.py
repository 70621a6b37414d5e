"""Wire format of that service: a `.proto` file of ours, and the code generated from it by `make generate`."""
