"""The agent's side: asks the worker by deadline and turns answers into the vocabulary; makes no native call."""
