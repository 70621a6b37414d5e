"""Child processes and worker threads: started, asked by deadline, replaced, never outliving the agent."""
