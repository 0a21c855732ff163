"""Where the work runs: the device, the threads and the processes."""
