"""Real processes, from the outside: what `xce up` and `xce demo` promise."""
