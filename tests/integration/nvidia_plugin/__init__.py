"""NVIDIA's own device plugin, asked the same as ours: its code is compiled as its module has it, with our questions."""
