"""What the MPS control daemon says and does, on the stand-in and on NVIDIA's own of two drivers.

Without a GPU a real daemon starts no server that stays. What only a server answers is therefore not here: see
`docs/development/stand-ins.md`.
"""
