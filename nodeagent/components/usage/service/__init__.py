"""Use in the format of Tencent's gpu-manager, for its former clients."""
