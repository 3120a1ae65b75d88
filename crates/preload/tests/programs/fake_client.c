// A program over fake_hip.c; `cost` prints nanoseconds of processor time a call instead.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int hipHostMalloc(void**, size_t, unsigned);
int hipMallocHost(void**, size_t);
int hipHostRegister(void*, size_t, unsigned);
int hipExtMallocWithFlags(void**, size_t, unsigned);
int hipMallocManaged(void**, size_t, unsigned);
int hipMemCreate(void**, size_t, const void*, unsigned long long);
int hipMemAdvise(const void*, size_t, int, int);
void* its_own(void);
void managed_variable(void);
int hsa_amd_memory_pool_allocate(uint64_t, size_t, uint32_t, void**);
int hsa_memory_allocate(uint64_t, size_t, void**);
int hsa_amd_vmem_handle_create(uint64_t, size_t, int, uint64_t, uint64_t*);
int hsa_amd_svm_attributes_set(void*, size_t, const uint64_t (*)[2], size_t);
extern int grain;

int main(int count, char** arguments) {
    void* at = NULL;
    if (count > 1 && !strcmp(arguments[1], "cost")) {
        const int calls = 20000000;
        struct timespec start, end;
        hipMallocHost(&at, 1);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
        for (int i = 0; i < calls; i++) hipMallocHost(&at, i);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        printf("%.2f\n", ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls);
        return 0;
    }
    if (count > 1 && !strcmp(arguments[1], "misuse")) {
        // Aligned to nothing; none; as many as there is no memory for, of which HSA reads none.
        char bytes[33];
        const uint64_t pairs[][2] = {{5, 9}, {0, 0}};
        memcpy(bytes + 1, pairs, 32);
        const uint64_t(*list)[2] = (void*)(bytes + 1);
        printf("misaligned %d", hsa_amd_svm_attributes_set(&at, 64, list, 2));
        printf(" %d\n", grain);
        printf("none %d\n", hsa_amd_svm_attributes_set(&at, 64, NULL, 0));
        printf("endless %d\n", hsa_amd_svm_attributes_set(&at, 64, list, -1));
        printf("wild and endless %d\n", hsa_amd_svm_attributes_set(&at, 64, (void*)8, 1ull << 60));
        // Each says a line, if anybody listens.
        for (int i = 0; i < 1000; i++) hipHostMalloc(&at, 5000, 2);
        printf("register uncached %d\n", hipHostRegister(&at, 5000, 0x80000000u));
        return 0;
    }
    int status = hipHostMalloc(&at, 5000, 2);
    printf("host %d 0x%lx own 0x%lx\n", status, (long)at, (long)its_own());
    printf("register 0x%x\n", hipHostRegister(&at, 5000, 0));
    printf("register io 0x%x\n", hipHostRegister(&at, 5000, 4));
    printf("register uncached %d\n", hipHostRegister(&at, 5000, 0x80000000u));
    status = hipExtMallocWithFlags(&at, 5000, 3);
    printf("uncached %d 0x%lx\n", status, (long)at);
    status = hipExtMallocWithFlags(&at, 8, 2);
    printf("signal %d 0x%lx\n", status, (long)at);
    status = hipMemCreate(&at, 5000, "of", 0);
    printf("create %d 0x%lx\n", status, (long)at);
    status = hipMallocManaged(&at, 5000, 1);
    printf("managed %d %d\n", status, grain);
    managed_variable();
    printf("variable %d\n", grain);
    status = hipMemAdvise(at, 5000, 3, 0);
    printf("preferred %d %d\n", status, grain);
    status = hipMemAdvise(at, 5000, 101, 0);
    printf("unset %d %d\n", status, grain);
    hsa_amd_memory_pool_allocate(0x100, 64, 0, &at);
    printf("arguments 0x%lx\n", (long)at);
    hsa_amd_memory_pool_allocate(0x400, 64, 0, &at);
    printf("card 0x%lx\n", (long)at);
    hsa_amd_memory_pool_allocate(0x500, 64, 0, &at);
    printf("lds 0x%lx\n", (long)at);
    hsa_memory_allocate(0x400, 64, &at);
    printf("region 0x%lx\n", (long)at);
    uint64_t handle = 0;
    status = hsa_amd_vmem_handle_create(0x400, 5000, 1, 0, &handle);
    printf("virtual %d 0x%lx\n", status, (long)handle);
    const uint64_t list[][2] = {{5, 9}, {0, 0}};
    status = hsa_amd_svm_attributes_set(&at, 64, list, 2);
    printf("attributes %d %d of %d\n", status, grain, (int)list[1][1]);
    return 0;
}
