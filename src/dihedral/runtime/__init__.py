"""Where the work runs: the device, the processes and the description of the environment."""
