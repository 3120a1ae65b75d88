// A program of HSA's: what its pools and regions give. Prints a line each: NAME FLAGS OF THE MEMORY.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HSA(call)                                                \
    do {                                                         \
        hsa_status_t status_ = (call);                           \
        if (status_ != HSA_STATUS_SUCCESS) {                     \
            printf("FAILED: %s: 0x%x\n", #call, (int)status_);   \
            exit(1);                                             \
        }                                                        \
    } while (0)

static void tell(const char* name, void* memory) {
    hsa_amd_pointer_info_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    HSA(hsa_amd_pointer_info(memory, &info, NULL, NULL, NULL));
    printf("%s %u\n", name, (unsigned)info.global_flags);
}

static hsa_status_t pool(hsa_amd_memory_pool_t pool, void* data) {
    hsa_amd_segment_t segment;
    HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
    uint32_t flags = 0;
    HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    char name[64];
    void* memory = NULL;
    HSA(hsa_amd_memory_pool_allocate(pool, 4096 + rand() % 100000, 0, &memory));
    snprintf(name, sizeof name, "%s-pool-%u", (const char*)data, (unsigned)flags);
    tell(name, memory);
    HSA(hsa_amd_memory_pool_free(memory));
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t region(hsa_region_t region, void* data) {
    hsa_region_segment_t segment;
    HSA(hsa_region_get_info(region, HSA_REGION_INFO_SEGMENT, &segment));
    if (segment != HSA_REGION_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
    uint32_t flags = 0;
    HSA(hsa_region_get_info(region, HSA_REGION_INFO_GLOBAL_FLAGS, &flags));
    char name[64];
    void* memory = NULL;
    HSA(hsa_memory_allocate(region, 4096 + rand() % 100000, &memory));
    snprintf(name, sizeof name, "%s-region-%u", (const char*)data, (unsigned)flags);
    tell(name, memory);
    HSA(hsa_memory_free(memory));
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t agent(hsa_agent_t agent, void* data) {
    (void)data;
    hsa_device_type_t type;
    HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    void* name = type == HSA_DEVICE_TYPE_CPU ? "host" : "card";
    HSA(hsa_amd_agent_iterate_memory_pools(agent, pool, name));
    if (type == HSA_DEVICE_TYPE_CPU) HSA(hsa_agent_iterate_regions(agent, region, name));
    return HSA_STATUS_SUCCESS;
}

int main(void) {
    // A second start must not meet what the first one left.
    for (int twice = 0; twice < 2; twice++) {
        HSA(hsa_init());
        HSA(hsa_iterate_agents(agent, NULL));
        HSA(hsa_shut_down());
    }
    puts("passed");
    return 0;
}
