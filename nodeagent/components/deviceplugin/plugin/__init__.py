"""The plugin of whole or shared GPUs, for the kubelet's questions."""
