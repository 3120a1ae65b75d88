#version 450
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : enable
#extension GL_KHR_shader_subgroup_basic : enable
#extension GL_KHR_shader_subgroup_arithmetic : enable
#extension GL_KHR_shader_subgroup_ballot : enable
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Parameters { uint count, a, b, sx, sy, c, op, d; };
layout(set = 0, binding = 0) buffer X { uint x[]; };
layout(set = 0, binding = 1) buffer Y { uint y[]; };
layout(set = 0, binding = 2) buffer Z { uint z[]; };
#define LOCAL gl_WorkGroupSize.x
uint lane() { return gl_LocalInvocationID.x; }
uint group() { return gl_WorkGroupID.x + sx * (gl_WorkGroupID.y + sy * gl_WorkGroupID.z); }
uint index() { return group() * LOCAL + lane(); }
