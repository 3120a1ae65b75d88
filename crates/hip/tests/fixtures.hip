// The fixture kernels of the conformance suite (crates/device/src/conformance.rs).
typedef unsigned int uint;
#define KERNEL extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void
struct Step { uint first, count, mul, add; };
struct Spin { uint first, count, rounds; };

KERNEL step(const uint* src, uint* dst, Step p) {
  uint i = (p.first + __builtin_amdgcn_workgroup_id_x()) * 64u + __builtin_amdgcn_workitem_id_x();
  if (i < p.count) dst[i] = src[i] * p.mul + p.add;
}
KERNEL spin(uint* dst, Spin p) {
  uint i = (p.first + __builtin_amdgcn_workgroup_id_x()) * 64u + __builtin_amdgcn_workitem_id_x(), v = i;
  for (uint round = 0; round < p.rounds; round++) {
    v = v * 1664525u + 1013904223u;
    asm volatile("" : "+v"(v)); // or clang finds a closed form
  }
  if (i < p.count) dst[i] = v;
}
