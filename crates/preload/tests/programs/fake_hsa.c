// Stands in for HSA where the virtual card has no such thing: one pool for fine-grained memory and arguments, as old
// runtimes have, and shared virtual memory. Allocations are their pool's number.
#include <stdint.h>
#include <stddef.h>

enum { CPU = 7, CARD = 8, FINE = 0x100, COARSE = 0x200, CARD_COARSE = 0x300, CARD_FINE = 0x400, CARD_LDS = 0x500 };
typedef int (*each)(uint64_t, void*);

int hsa_iterate_agents(each call, void* data) {
    int status = call(CPU, data);
    return status ? status : call(CARD, data);
}
int hsa_amd_agent_iterate_memory_pools(uint64_t agent, each call, void* data) {
    const uint64_t pools[][4] = {{FINE, COARSE}, {CARD_LDS, CARD_FINE, CARD_COARSE}};
    for (const uint64_t* pool = pools[agent == CARD]; *pool; pool++) {
        int status = call(*pool, data);
        if (status) return status;
    }
    return 0;
}
int hsa_amd_memory_pool_get_info(uint64_t pool, int info, void* value) {
    if (info == 0) *(uint32_t*)value = pool == CARD_LDS ? 3 : 0;
    else if (info == 1) *(uint32_t*)value = pool == FINE ? 3 : pool == CARD_FINE ? 8 : 4;
    else return 0x1001;
    return 0;
}
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void** at) {
    *at = (void*)(pool + flags + bytes * 0);
    return 0;
}
int hsa_memory_allocate(uint64_t region, size_t bytes, void** at) {
    return hsa_amd_memory_pool_allocate(region, bytes, 0, at);
}
int hsa_amd_memory_lock_to_pool(void* host, size_t bytes, uint64_t* agents, int count, uint64_t pool, uint32_t flags,
                                void** at) {
    *at = (void*)(pool + flags);
    return !(host && bytes == 5000 && agents && count == 1);
}
int hsa_amd_vmem_handle_create(uint64_t pool, size_t bytes, int kind, uint64_t flags, uint64_t* handle) {
    *handle = pool;
    return !(bytes == 5000 && kind == 1 && flags == 0);
}
// What the grain was set to: -1 if it was not named.
int grain;
int hsa_amd_svm_attributes_set(void* at, size_t bytes, const uint64_t (*list)[2], size_t count) {
    grain = -1;
    if (count > 1 << 20) return 0x1001;
    for (size_t i = 0; i < count; i++)
        if (list[i][0] == 0) grain = (int)list[i][1];
    return !(at && bytes);
}
