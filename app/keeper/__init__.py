"""The small parent of all tasks on a host; standard library only, imports nothing of app."""
