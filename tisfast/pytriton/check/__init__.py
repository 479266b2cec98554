"""Whether it works on this machine, and what tests of PyTriton's users import."""
