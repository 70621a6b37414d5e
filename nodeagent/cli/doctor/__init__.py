"""`nodeagent doctor`: checks everything by itself, with or without an agent, and names remedies."""
