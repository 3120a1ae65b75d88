// Stands in for a HIP over fake_hsa.c: what it asks of HSA for a program and for itself.
#include <stdint.h>
#include <stddef.h>

enum { FINE = 0x100, CARD_FINE = 0x400 };
int hsa_amd_memory_pool_allocate(uint64_t pool, size_t bytes, uint32_t flags, void** at);
int hsa_amd_memory_lock_to_pool(void*, size_t, uint64_t*, int, uint64_t, uint32_t, void**);
int hsa_amd_vmem_handle_create(uint64_t, size_t, int, uint64_t, uint64_t*);
int hsa_amd_svm_attributes_set(void* at, size_t bytes, const uint64_t (*list)[2], size_t count);

static void* own;
void* its_own(void) { return own; }
int hipInit(unsigned flags) {
    if (!own) hsa_amd_memory_pool_allocate(FINE, 64, flags, &own);
    return 0;
}
int hipHostMalloc(void** at, size_t bytes, unsigned flags) {
    hipInit(0);
    // Newer ones ask for uncached memory, and executable.
    return hsa_amd_memory_pool_allocate(FINE, bytes, flags == 2 ? 8 + 4 : 0, at);
}
// Nothing but the call.
int hipMallocHost(void** at, size_t bytes) { return at == 0 && bytes == 0; }
int hipHostRegister(void* host, size_t bytes, unsigned flags) {
    uint64_t agent = 8;
    void* at = 0;
    int status = hsa_amd_memory_lock_to_pool(host, bytes, &agent, 1, FINE, 0, &at);
    return status ? status : (int)(intptr_t)at + (int)flags * 0;
}
int hipExtMallocWithFlags(void** at, size_t bytes, unsigned flags) {
    return hsa_amd_memory_pool_allocate(flags ? CARD_FINE : 0x300, bytes, 0, at);
}
static int managed(void** at, size_t bytes) {
    const uint64_t list[][2] = {{0x200, 8}};
    *at = (void*)4096;
    return hsa_amd_svm_attributes_set(*at, bytes, list, 1);
}
int hipMallocManaged(void** at, size_t bytes, unsigned flags) { return flags != 1 || managed(at, bytes); }
// As for variables that are __managed__: nobody calls for their memory.
void managed_variable(void) {
    void* at = 0;
    managed(&at, 64);
}
int hipMemCreate(void** at, size_t bytes, const void* of, unsigned long long flags) {
    return hsa_amd_vmem_handle_create(FINE, bytes, of != 0, flags, (uint64_t*)at);
}
int hipMemAdvise(const void* at, size_t bytes, int advice, int card) {
    // Unset coarse grain; else the preferred place.
    const uint64_t list[][2] = {{advice == 101 ? 0 : 0x5, (uint64_t)card}};
    return hsa_amd_svm_attributes_set((void*)at, bytes, list, 1);
}
