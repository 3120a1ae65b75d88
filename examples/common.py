"""What all examples share: options, the choice of the device, clocks, the peak of memory, and one line of JSON."""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """The text as it is written, and the default of each option."""


def arguments(about):
    """A parser with the options that every example has."""
    parser = argparse.ArgumentParser(description=about, formatter_class=_Help)
    parser.add_argument(
        "--device", choices=("auto", "wave", "cuda", "cpu"), default="auto",
        help="auto: wave if there is a GPU for it, else cuda, else cpu",
    )  # fmt: skip
    parser.add_argument("--small", action="store_true", help="sizes that end within a minute on two processor cores")
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end; the rest goes to stderr")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    return parser


def parsed(parser, **small):
    """The options; with --small, `small` has the defaults."""
    options = parser.parse_args()
    if options.small:
        parser.set_defaults(**small)
        options = parser.parse_args()
    return options


def _chosen(asked):
    named = asked != "auto"
    if asked in ("auto", "wave"):
        try:
            import wave32  # noqa: F401

            # A software driver counts only where it was asked for.
            if torch.wave.is_available() and (named or torch.wave.get_device_properties().kind != "cpu"):
                return "wave"
        except (ImportError, RuntimeError) as error:
            if named:
                sys.exit(f"wave: {error}")
        if named:
            sys.exit("wave: there is no Vulkan device; `wave32 doctor` says why")
    if asked in ("auto", "cuda"):
        if torch.cuda.is_available():
            return "cuda"
        if named:
            sys.exit("cuda: this PyTorch finds no such device")
    return "cpu"


class Run:
    """One run of an example: says what happens, and keeps the figures."""

    def __init__(self, options):
        self.options = options
        self.device = _chosen(options.device)
        self.module = None if self.device == "cpu" else getattr(torch, self.device)
        self.seconds = {}
        self.name = self.module.get_device_name() if self.module else "the processor"
        if self.device == "cuda":
            # As wave computes: f32 is f32.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(options.seed)
        self.say(f"{self.device}: {self.name}, PyTorch {torch.__version__}")

    def say(self, text):
        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def synchronize(self):
        if self.module:
            self.module.synchronize()

    def peak(self):
        """The most bytes that tensors held, None on the CPU."""
        return self.module.max_memory_allocated() if self.module else None

    def peak_reserved(self):
        """The most bytes that the process took from the driver: what has to fit on the card. None on the CPU."""
        return self.module.max_memory_reserved() if self.module else None

    def memory(self):
        return f", {self.peak_reserved() / 2**30:.2f} GiB of the device so far" if self.module else ""

    def close(self):
        """Gives unused memory back before the next part."""
        if self.module:
            self.module.empty_cache()

    @contextlib.contextmanager
    def clock(self, what):
        """Takes the time of a part."""
        self.synchronize()
        start = time.perf_counter()
        yield
        self.synchronize()
        self.seconds[what] = time.perf_counter() - start
        self.say(f"{what}: {self.seconds[what]:.3f} s{self.memory()}")

    def ticker(self, what, count):
        """A function that ends one turn of `count` and begins the next. The median time is kept; the first is a warm-up."""
        times, told = [], 0.0
        self.synchronize()
        begun = time.perf_counter()

        def tick():
            nonlocal begun, told
            self.synchronize()
            now = time.perf_counter()
            times.append(now - begun)
            self.seconds[what] = statistics.median(times[1:] or times)
            if now - told > 2 or len(times) == count:
                told = now
                self.say(f"{what}: {len(times)} of {count}, {times[-1]:.3f} s{self.memory()}")
            begun = time.perf_counter()

        return tick

    def steps(self, what, count):
        """Counts from 0 to `count`, and takes the time of each turn."""
        tick = self.ticker(what, count)
        for step in range(count):
            yield step
            tick()

    def finish(self, **numbers):
        """The last words, or the line of JSON."""
        fallbacks = dict(torch.wave.fallbacks()) if self.device == "wave" else {}
        if self.device == "wave":
            self.say(f"operators that ran on the CPU: {', '.join(sorted(fallbacks)) or 'none'}")
        if self.module:
            self.say(f"peak: tensors {self.peak() / 2**30:.2f} GiB, taken from the driver {self.peak_reserved() / 2**30:.2f} GiB")
        if self.options.json:
            line = {
                "example": sys.argv[0].rsplit("/", 1)[-1].removesuffix(".py"), "device": self.device, "name": self.name,
                "torch": torch.__version__, "small": self.options.small, "seconds": self.seconds,
                "peak_memory": self.peak(), "peak_reserved": self.peak_reserved(), "fallbacks": fallbacks, **numbers,
            }  # fmt: skip
            print(json.dumps(line), flush=True)


def require(*packages):
    """Ends with a sentence where a package is not installed."""
    from importlib.util import find_spec

    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        sys.exit(f"this example needs {' and '.join(missing)}: pip install {' '.join(missing)}")
