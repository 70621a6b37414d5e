"""Child processes and worker threads: started, called with a deadline, replaced, never outliving the agent."""
