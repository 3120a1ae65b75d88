"""A differential fuzzer of the device `wave`: random calls, there and on the CPU (docs/TESTING.md).

    python -m differential --seconds N --seed S [--cases N] [--jobs J] [--json FILE]
"""
