"""GPU nodes without GPUs: hardware from profiles of real boards, a stand-in kubelet, and pods that come and go."""
