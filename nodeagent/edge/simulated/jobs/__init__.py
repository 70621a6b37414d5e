"""Who works on simulated GPUs: jobs that come and go, and the containers that hold parts."""
