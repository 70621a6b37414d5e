"""How much of a cluster policies of packing give away, and whom they refuse: a made-up cluster, real sizes of pods."""
