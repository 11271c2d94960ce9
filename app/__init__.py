"""The programs of xce and what they are made of."""
