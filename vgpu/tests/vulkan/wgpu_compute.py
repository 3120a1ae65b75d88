"""wgpu (wgpu-native, Rust): compute shaders in WGSL against numpy; a timestamp, an indirect dispatch, a texture."""

import subprocess
import sys

import numpy as np
import wgpu
from checks import Checks

N = 1000

SCALE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&x)) { y[id.x] = 2.0 * sin(x[id.x]) + 1.0; }
}"""

# Past the end of both buffers: WebGPU gives a number of the buffer, or none, and stores nothing elsewhere.
BEYOND = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let far = x[id.x + 5000u];
    if (id.x < 1000u) { y[id.x] = x[id.x] + 1.0; }
    if (id.x == 3000000u) { y[id.x] = far; }
}"""

MATMUL = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
var<workgroup> ta: array<array<f32, 16>, 16>;
var<workgroup> tb: array<array<f32, 16>, 16>;
@compute @workgroup_size(16, 16) fn main(@builtin(global_invocation_id) id: vec3<u32>,
                                         @builtin(local_invocation_id) l: vec3<u32>) {
    var sum = 0.0;
    for (var t = 0u; t < 64u; t += 16u) {
        ta[l.y][l.x] = a[id.y * 64u + t + l.x];
        tb[l.y][l.x] = b[(t + l.y) * 64u + id.x];
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) { sum += ta[l.y][k] * tb[k][l.x]; }
        workgroupBarrier();
    }
    c[id.y * 64u + id.x] = sum;
}"""

HALVES = """enable f16;
@group(0) @binding(0) var<storage, read> x: array<f16>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < 1000u) { y[id.x] = x[id.x] * x[id.x] + 0.5h; }
}"""

REDUCE = """
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
@compute @workgroup_size(128) fn main(@builtin(global_invocation_id) id: vec3<u32>,
                                      @builtin(subgroup_invocation_id) lane: u32) {
    var mine = 0u;
    if (id.x < 1000u) { mine = x[id.x]; atomicMax(&y[1], mine); }
    let sum = subgroupAdd(mine);
    if (lane == 0u) { atomicAdd(&y[0], sum); }
}"""

CONV = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var sum = 0.0;
    for (var c = 0u; c < 4u; c++) { for (var r = 0u; r < 3u; r++) { for (var s = 0u; s < 3u; s++) {
        sum += x[(c * 18u + id.y + r) * 18u + id.x + s] * w[((id.z * 4u + c) * 3u + r) * 3u + s];
    } } }
    y[(id.z * 16u + id.y) * 16u + id.x] = sum;
}"""


class Gpu:
    def __init__(self):
        # WebGL would do as well: radeonsi on the same card draws, which it does not.
        adapters = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
        if not adapters:
            raise RuntimeError("no Vulkan adapter")
        wanted = ["shader-f16", "subgroup", "timestamp-query"]
        self.device = adapters[0].request_device_sync(required_features=[f for f in wanted if f in adapters[0].features])

    def buffer(self, data: np.ndarray):
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.INDIRECT
        return self.device.create_buffer_with_data(data=data, usage=usage)

    def run(self, code: str, inputs: list, out: np.ndarray, groups: tuple, indirect=False, stamps=None) -> np.ndarray:
        buffers = [self.buffer(data) for data in [*inputs, out]]
        module = self.device.create_shader_module(code=code)
        pipeline = self.device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        entries = [{"binding": i, "resource": {"buffer": b}} for i, b in enumerate(buffers)]
        group = self.device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
        encoder = self.device.create_command_encoder()
        writes = None
        if stamps:
            writes = {"query_set": stamps, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
        work = encoder.begin_compute_pass(timestamp_writes=writes)
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        if indirect:
            work.dispatch_workgroups_indirect(self.buffer(np.array(groups, np.uint32)), 0)
        else:
            work.dispatch_workgroups(*groups)
        work.end()
        self.device.queue.submit([encoder.finish()])
        return np.frombuffer(self.device.queue.read_buffer(buffers[-1]), out.dtype).reshape(out.shape)

    def texture(self, pixels: np.ndarray) -> np.ndarray:
        """To a texture and back: an image that only copies touch."""
        height, width, _ = pixels.shape
        usage = wgpu.TextureUsage.COPY_DST | wgpu.TextureUsage.COPY_SRC
        texture = self.device.create_texture(size=(width, height, 1), format="rgba8unorm", usage=usage)
        layout = {"bytes_per_row": 4 * width, "rows_per_image": height}
        self.device.queue.write_texture({"texture": texture}, pixels, layout, (width, height, 1))
        back = self.device.queue.read_texture({"texture": texture}, layout, (width, height, 1))
        return np.frombuffer(back, np.uint8).reshape(pixels.shape)


def texture():
    pixels = np.random.default_rng(3).integers(0, 256, (64, 64, 4)).astype(np.uint8)
    sys.exit(0 if np.array_equal(Gpu().texture(pixels), pixels) else 1)


def main():
    checks = Checks("wgpu", wgpu.__version__)
    try:
        gpu = Gpu()
    except RuntimeError as error:
        checks.tell("refused", "a device", str(error))
        checks.end()
    rng = np.random.default_rng(3)
    x = rng.standard_normal(N).astype(np.float32)
    empty = np.zeros(N, np.float32)
    a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    image, weights = rng.standard_normal((4, 18, 18)), rng.standard_normal((8, 4, 3, 3))
    image, weights = image.astype(np.float32), weights.astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))
    halves = x.astype(np.float16)
    counts = rng.integers(0, 1000, N).astype(np.uint32)

    def check(what, wanted, tolerance, *arguments, **named):
        checks.attempt(what, lambda: checks.close(what, gpu.run(*arguments, **named), wanted, tolerance))

    wave = 2 * np.sin(x) + 1
    check("sine", wave, 1e-5, SCALE, [x], empty, (16, 1, 1))
    check("indirect dispatch", wave, 1e-5, SCALE, [x], empty, (16, 1, 1), indirect=True)
    check("matrix product in LDS", a @ b, 1e-5, MATMUL, [a, b], np.zeros((64, 64), np.float32), (4, 4, 1))
    check("convolution 3x3", np.einsum("chwrs,kcrs->khw", windows, weights), 1e-5, CONV, [image, weights],
          np.zeros((8, 16, 16), np.float32), (2, 2, 8))
    check("f16", halves * halves + np.float16(0.5), 1e-3, HALVES, [halves], np.zeros(N, np.float16), (16, 1, 1))
    check("atomics and subgroups", [counts.sum(), counts.max()], 0, REDUCE, [counts], np.zeros(2, np.uint32), (8, 1, 1))

    def timed():
        stamps = gpu.device.create_query_set(type="timestamp", count=2)
        gpu.run(SCALE, [x], empty, (16, 1, 1), stamps=stamps)
        out = gpu.device.create_buffer(size=16, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
        encoder = gpu.device.create_command_encoder()
        encoder.resolve_query_set(stamps, 0, 2, out, 0)
        gpu.device.queue.submit([encoder.finish()])
        begin, end = np.frombuffer(gpu.device.queue.read_buffer(out), np.uint64)
        checks.tell("right" if 0 < begin <= end else "wrong", "timestamps")

    checks.attempt("timestamps", timed)
    check("buffers read past their end", x + 1, 0, BEYOND, [x], empty, (16, 1, 1))
    def made():
        usage = wgpu.TextureUsage.TEXTURE_BINDING | wgpu.TextureUsage.STORAGE_BINDING
        kept = gpu.device.create_texture(size=(64, 64, 1), format="rgba8unorm", usage=usage), gpu.device.create_sampler()
        checks.close("beside an unused texture and sampler", gpu.run(SCALE, [x], empty, (16, 1, 1)), wave, 1e-5)
        del kept

    checks.attempt("beside an unused texture and sampler", made)
    # A process of its own: wgpu does not tell of a lost device, or ends the process with the next work.
    child = subprocess.run([sys.executable, __file__, "texture"], capture_output=True, text=True)
    card = [line for line in child.stderr.splitlines() if line.startswith("wave32-vgpu: ")]
    if card:
        checks.tell("refused", "a texture, there and back", card[0].removeprefix("wave32-vgpu: "))
    else:
        checks.tell("wrong" if child.returncode else "right", "a texture, there and back")
    checks.end()


texture() if "texture" in sys.argv else main()
