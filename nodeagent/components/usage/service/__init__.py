"""Use in the words of Tencent's gpu-manager, for whoever asked that until now."""
