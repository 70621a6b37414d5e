"""Programs that tests start: the agent, a child, a browser, a service manager, and what is compiled for tests."""
