"""``python -m tfhvd``: the command ``tfhvd``."""

import sys

from tfhvd.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
