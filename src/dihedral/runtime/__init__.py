"""The device, the processes and the environment that work runs in."""
