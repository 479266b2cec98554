"""`python -m tisfast`."""

import sys

from tisfast.cli import main

sys.exit(main())
