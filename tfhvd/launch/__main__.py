"""``python -m tfhvd.launch`` is ``tfhvdrun``."""

import sys

from tfhvd.launch.cli import main

sys.exit(main())
