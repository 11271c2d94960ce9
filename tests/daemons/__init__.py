"""The parts of the daemons, against a database of their own."""
