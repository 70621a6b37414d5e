"""The life of components: what they are, when they start, how often they may fail, how all of it ends."""
