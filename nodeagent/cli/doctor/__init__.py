"""`nodeagent doctor`: looks at everything by itself, with or without an agent, and says what to do."""
