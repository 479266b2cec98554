"""Protocol buffer definitions, compiled to one descriptor set at build time."""
