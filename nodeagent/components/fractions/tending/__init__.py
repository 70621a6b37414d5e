"""The end of fractions: bindings compared with kubelet, runtime and GPUs, and released when their containers end."""
