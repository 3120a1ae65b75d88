# Two commands: `make demo` proves wave32 on this machine, `make test` runs every test.
# Both install what is missing first; see scripts/setup.sh for what that is.

.DEFAULT_GOAL := help
.PHONY: help setup build demo test scripts oracle verify lint

TARGET = $(or $(CARGO_TARGET_DIR),target)

help:
	@echo 'make demo   install what is missing, build, verify the seed and network suites on every device here'
	@echo 'make test   install what is missing, run every test'
	@echo 'make lint   rustfmt and clippy, warnings as errors'

setup:
	@scripts/setup.sh

build: setup
	cargo build --release

demo: build
	@mkdir -p $(TARGET)/demo
	$(TARGET)/release/wave32 devices
	$(TARGET)/release/wave32 verify seeds nets --html $(TARGET)/demo/verify.html

# A test that would be skipped for want of a compiler or of a Vulkan driver fails here: setup installs both.
test: setup
	WAVE32_REQUIRE_COMPILERS=1 WAVE32_REQUIRE_VULKAN=1 cargo test --workspace
	@$(MAKE) --no-print-directory scripts oracle

scripts:
	python3 scripts/test_bench_vs_cudnn.py

# The f64 oracle against PyTorch on fresh random problems, where PyTorch is or can be had without its 5 GB of CUDA
# libraries; everywhere, `cargo test` holds the oracle against results that PyTorch gave for a committed set.
oracle:
	@python="$$(scripts/torch_python.sh)" || exit 0; "$$python" scripts/oracle_torch.py --check

# A short run of the main job in the tests' build: every type, every device.
verify: setup
	cargo build
	$(TARGET)/debug/wave32 verify seeds nets fuzz:60 --max-gflop 0.001 --dtype f32,f16,bf16

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
