"""The service for use by clients of Tencent's gpu-manager, spoken on a unix socket."""
