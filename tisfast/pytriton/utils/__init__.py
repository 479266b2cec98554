"""Parts of PyTriton's module tree that programs import."""
