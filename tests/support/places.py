"""Where things stand in a checkout: paths, for tests in any folder."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SAMPLES = sorted((ROOT / "samples").glob("*.wav"))
