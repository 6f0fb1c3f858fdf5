"""Where tests find real task data; they skip where there is none."""

import os
from pathlib import Path

DATA = Path(os.environ.get("POSENC_JAX_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
