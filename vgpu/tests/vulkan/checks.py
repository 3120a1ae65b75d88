"""What the programs here have in common: comparisons, told one a line, and a last line for the table."""

import sys

import numpy as np

# Not right: the card, the driver or the program computed something else.
WRONG = 1
# Not run: somebody said that it cannot be done.
REFUSED = 3


class Checks:
    def __init__(self, program: str, version: str):
        self.name = f"{program} {version}"
        self.counts = {"right": 0, "wrong": 0, "refused": 0}
        print(self.name, flush=True)

    def tell(self, verdict: str, what: str, why: str = ""):
        self.counts[verdict] += 1
        print(f"  {verdict:8}{what}{': ' if why else ''}{why}", flush=True)

    def close(self, what: str, got, wanted, tolerance: float):
        """Compares by the largest difference, relative to the largest value."""
        got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        if got.shape != wanted.shape:
            self.tell("wrong", what, f"shape {got.shape}, not {wanted.shape}")
            return
        error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)
        # A NaN is no number below the tolerance.
        self.tell("right" if error <= tolerance else "wrong", what, f"{error:.1e} off")

    def attempt(self, what: str, compare):
        """Runs `compare`; what it raises is a refusal."""
        try:
            compare()
        except Exception as error:
            # Of whatever library.
            self.tell("refused", what, str(error).strip().split("\n")[0][:200] or type(error).__name__)

    def end(self):
        told = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        print(f"{self.name}: {told or 'nothing ran'}", flush=True)
        if self.counts["wrong"]:
            sys.exit(WRONG)
        sys.exit(0 if self.counts["right"] and not self.counts["refused"] else REFUSED)
