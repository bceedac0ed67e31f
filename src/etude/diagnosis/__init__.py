"""What works on this machine: the doctor, and brief tries of everything."""
