"""The crash matrix: the agent killed at every step by which it changes anything that outlives it.

`points` finds those steps in the code, `armed` is an agent that dies at one of them, `tour` takes a node through
everything that makes it take them, and `matrix` does so for each, and looks at what the next agent makes of it.
"""
