"""Writes by Spark's ``df.write`` alone, and has driver and JVM killed again and again.

The driver is ``spark_plain_driver.py``; it ends by itself when the plan is done.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from spark_lives import LOOK_EVERY_S, Lives, lead


def run(lives: Lives) -> None:
    """Kill until the plan is done."""
    lives.start()
    while lives.revive():
        lives.look()
        time.sleep(LOOK_EVERY_S)


lead(run, "spark_plain_driver.py")
