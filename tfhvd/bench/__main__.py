"""``python -m tfhvd.bench``."""

import sys

from tfhvd.bench.cli import main

sys.exit(main())
