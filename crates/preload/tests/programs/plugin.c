// A module of Python's kind: its symbols and its libraries' are its own.
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#include <hsa/hsa_ext_amd.h>
#include <string.h>

// Flags of what hipHostMalloc gives, or -1 less hipError_t.
int flags_of_host_memory(void) {
    void* memory = NULL;
    hipError_t error = hipHostMalloc(&memory, 5000, 0);
    if (error != hipSuccess) return -1 - (int)error;
    hsa_amd_pointer_info_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    hsa_amd_pointer_info(memory, &info, NULL, NULL, NULL);
    hipHostFree(memory);
    return (int)info.global_flags;
}
