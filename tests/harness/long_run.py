"""`make test-long SEED=… MINUTES=…`: all that is random or exhaustive, with one seed after the other."""

import os
import subprocess
import sys
import time

from tests.harness.campaign import LONG_UNTIL, SEED, seed, settle


def main(minutes: float, arguments: list[str]) -> int:
    """Stops at the first seed that fails, and says which; 0 when none did."""
    settle()
    os.environ[LONG_UNTIL] = str(time.time() + minutes * 60)
    while True:
        print(f"SEED={seed()}", flush=True)
        code = subprocess.run([sys.executable, "-m", "pytest", "-m", "campaign", *arguments], check=False).returncode
        if code != 0:
            print(f"It failed with SEED={seed()}: `make test-long SEED={seed()}` repeats it.", flush=True)
            return code
        if time.time() > float(os.environ[LONG_UNTIL]):
            return 0
        os.environ[SEED] = str(seed() + 1)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
