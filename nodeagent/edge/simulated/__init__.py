"""The same ports without hardware and without a cluster: profiles of real boards, and a stand-in kubelet."""
