"""What an agent that cuts no GPUs owes to those whom one before it has paused."""
