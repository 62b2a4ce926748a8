"""`python -m counterpath.cli`."""

import sys

from counterpath.cli import main

sys.exit(main())
