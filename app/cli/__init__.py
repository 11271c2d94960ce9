"""The program `xcecli`: owners and operators over REST only, quick to start."""
