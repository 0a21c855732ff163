"""The fault campaign: kills, full disks, damaged files, bombs and jumping clocks; `make soak` runs all of it."""
