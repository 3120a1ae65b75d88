"""What PyTorch's device-generic test files need on a PrivateUse1 device: the files, and the rules, as data."""

from __future__ import annotations

from typing import NamedTuple


class File(NamedTuple):
    """A test file below the checkout's `test/`."""

    path: str
    # Classes that are not device-generic but are run with the device as torch's default device.
    on_default_device: tuple[str, ...] = ()


FILES = [
    File("nn/test_convolution.py"),
    File("nn/test_pooling.py"),
    File("test_torch.py"),
    File("test_nn.py"),
    File("test_modules.py"),
    File("test_optim.py"),
    File("test_reductions.py"),
    File("test_indexing.py"),
    File("test_view_ops.py"),
    File("test_sort_and_select.py"),
    File("test_scatter_gather_ops.py"),
    File("test_shape_ops.py"),
    File("test_tensor_creation_ops.py"),
    File("test_type_promotion.py"),
    File("test_binary_ufuncs.py"),
    File("test_unary_ufuncs.py"),
    File("test_foreach.py"),
    File("test_autograd.py"),
    File("test_linalg.py"),
    File("test_spectral_ops.py"),
    File("test_transformers.py"),
    File("test_sparse.py"),
    File(
        "distributions/test_distributions.py",
        ("TestDistributions", "TestRsample", "TestDistributionShapes", "TestKL", "TestConstraints",
         "TestNumericalStability", "TestLazyLogitsInitialization", "TestAgainstScipy", "TestFunctors",
         "TestValidation", "TestJit"),
    ),
    File("test_ops.py"),
]

# (pattern, replacement, why), applied to the text of every file before it is compiled. Lines are kept.
TEXT = [
    (r"^(\s*)assert torch\.get_default_dtype\(\) (is|==) .*$", r"\1pass",
     "a file that shares its process with the device's set-up checks nothing by it"),
    (r"super\(self\.__class__, self\)", "super()",
     "torch's helpers now derive the device's class from the file's: a method that names its object's class calls itself"),
    (r"^(\s*)torch\.backends\.cuda\.matmul\.allow_tf32 = (True|False)$", r"\1pass",
     "torch's helpers now fail a test that leaves CUDA's flag changed, as an older file's tearDown does"),
    (r"\bdtypes_t\b", "dtypes",
     "the list is passed by the name `dtypes`; one file calls it otherwise"),
    (r"^(\s*)torch\.cuda\.synchronize\(\)$", r"\1getattr(torch, torch.device(device).type).synchronize()",
     "what is run on another device waits for that"),
    (r"\bnp\.msort\(", "(lambda a: np.sort(a, axis=0))(",
     "numpy 2 has no msort, which was this"),
    (r"^(\s+)interpolation(=interpolation, keepdims=keepdim\))", r"\1method\2",
     "quantile of numpy 2.4 has another name for it"),
    (r"return input_array if isinstance\(input_array, list\) else \[input_array\]",
     "return list(input_array) if isinstance(input_array, (list, tuple)) else [input_array]",
     "gradient of numpy 2 gives a tuple"),
    (r"stats\.kstest\((.+), (['\"]\w+['\"]), args=(.+)\)$", r"stats.kstest(\1, getattr(stats, \2)(*\3).cdf)",
     "kstest of scipy 1.17 passes a named distribution's arguments to a function that has none"),
    (r"signal\.get_window\((\s*)(\(name, .+\)), size, fftbins=periodic(\s*)\)",
     r"(signal.get_window(\1\2, size, fftbins=periodic\3) if size else np.empty(0))",
     "get_window of scipy 1.17 has no window of no points"),
    (r"\bm_copy = torch\.load\(f\)$", "m_copy = torch.load(f, weights_only=False)",
     "since torch 2.6 load takes weights alone unless told otherwise, and this is a whole module; newer files say so"),
    (r"\boptim_cls\(\[weight, bias\], ", "optim_cls([weight, bias] if optim_cls.__name__ != 'Muon' else [weight], ",
     "torch's list of optimizers now has Muon, which takes matrices alone; newer files leave it the matrix"),
    (r"\bif optim_cls\.__name__ == \"AdamW\":", "if optim_cls.__name__ in (\"AdamW\", \"Muon\"):",
     "Muon lessens weights by default, as AdamW does; newer files name both where they make the rate small"),
]

# A test marked for CUDA alone is run here where its own text names none of these: then it is about any GPU.
CUDA_ONLY_WORDS = ("cuda", "cudnn", "cublas", "cusolver", "cusparse", "magma", "miopen", "rocm", "nvrtc",
                   "jiterator", "triton")

# (pattern of ids, why): never run. They count against the goal as skipped by us.
SKIPPED = [
    (r"::test_(lobpcg|pca_lowrank|svd_lowrank)", "minutes of the CPU's linear algebra each"),
]

# (pattern of ids, why): run as with WAVE32_LAUNCH_BLOCKING=1.
BLOCKING = [
    (r"::test_(advancedindex|trivial_fancy_out_of_bounds)_",
     "indices out of range are to raise where they are used; the files leave CUDA out, where they are told late too"),
]

# (pattern of ids, seconds): other deadlines than the run's.
DEADLINES: list[tuple[str, float]] = [
    (r"::test_linspace_DEVICE_(float|complex|int32|int64)", 300),  # Asks for a million elements one by one.
]
