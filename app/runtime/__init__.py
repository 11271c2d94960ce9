"""What shells need of the process they run in: clock, settings, logs, stopping, failpoints."""
