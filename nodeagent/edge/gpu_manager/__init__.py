"""The service by which Tencent's gpu-manager tells its clients of use, spoken on a unix socket."""
