// module
#include "check.h"
// A code object from a file: kernels and variables by name, arguments both ways they can be given.
extern "C" __device__ int offset = 5;
extern "C" __global__ void scale(const float* a, float* out, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] * by + offset;
}
int main(int, char** argv) {
    const std::string file = std::string(argv[0]) + ".co";
    hipModule_t module;
    HIP(hipModuleLoad(&module, file.c_str()));
    hipFunction_t function;
    HIP(hipModuleGetFunction(&function, module, "scale"));
    require(hipModuleGetFunction(&function, module, "absent") == hipErrorNotFound, "a kernel that is not there was found");
    HIP(hipModuleGetFunction(&function, module, "scale"));
    hipDeviceptr_t variable;
    size_t bytes = 0;
    HIP(hipModuleGetGlobal(&variable, &bytes, module, "offset"));
    require(bytes == 4, "size of a variable");
    const int n = 1001;
    auto a = edgy<float>(n);
    for (int offset_now : {5, -9}) {
        HIP(hipMemcpy(variable, &offset_now, 4, hipMemcpyHostToDevice));
        for (bool packed : {false, true}) {
            Device<float> da(a), out(n);
            float by = 1.25f;
            int count = n;
            void* pointers[] = {&da.data, &out.data, &by, &count};
            struct {
                const float* a;
                float* out;
                float by;
                int n;
            } block = {da.data, out.data, by, n};
            size_t size = sizeof(block);
            void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &block, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                             HIP_LAUNCH_PARAM_END};
            HIP(hipModuleLaunchKernel(function, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, packed ? nullptr : pointers,
                                      packed ? extra : nullptr));
            HIP(hipDeviceSynchronize());
            std::vector<float> want(n);
            for (int i = 0; i < n; i++) want[i] = std::fma(a[i], by, float(offset_now));
            require_same("scale", out.host(), want);
        }
    }
    HIP(hipModuleUnload(module));
    passed();
}
