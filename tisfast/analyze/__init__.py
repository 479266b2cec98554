"""`tisfast analyze`: the configuration of a model that is best for an aim, found by measuring.  Layer 5 (analyze).

Above bench, whose sessions measure each variant.  command.py is what the command line calls.
"""
