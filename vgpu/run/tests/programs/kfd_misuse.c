// Calls the card as no sane program does: null, wild, misaligned, huge and overlapping arguments. Each call answers with an
// errno; nothing ends the process. `kfd_misuse.rs` runs it. The structures are those of the kernel's own header.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kfd_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PAGE = 4096 };
#define NOWHERE ((void*)0x00007abcdef00000)
static const uint64_t BASE = 1ull << 41;

static int kfd, wrong;
static uint32_t card;
// A page that may be written, one that may only be read, and one that is not there.
static char *page, *constant, *hole;

static void expect(int line, const char* what, int found, int wanted) {
    if (found == wanted) return;
    printf("line %d: %s: %d (%s), not %d\n", line, what, found, strerror(found), wanted);
    wrong++;
}
// The errno of a call, 0 where it succeeded.
#define ERRNO(call) ((call) == -1 ? errno : 0)
#define EXPECT(wanted, call) expect(__LINE__, #call, ERRNO(call), wanted)
#define SAME(wanted, value) expect(__LINE__, #value, (int)(value), (int)(wanted))

// An address with `bytes` before the hole.
static void* at_edge(size_t bytes) { return hole - bytes; }

struct request {
    unsigned long number;
    size_t bytes;
};
#define R(name) {name, _IOC_SIZE(name)}
static const struct request REQUESTS[] = {
    R(AMDKFD_IOC_GET_VERSION), R(AMDKFD_IOC_CREATE_QUEUE), R(AMDKFD_IOC_DESTROY_QUEUE), R(AMDKFD_IOC_UPDATE_QUEUE),
    R(AMDKFD_IOC_GET_CLOCK_COUNTERS), R(AMDKFD_IOC_GET_PROCESS_APERTURES_NEW), R(AMDKFD_IOC_CREATE_EVENT),
    R(AMDKFD_IOC_DESTROY_EVENT), R(AMDKFD_IOC_SET_EVENT), R(AMDKFD_IOC_RESET_EVENT), R(AMDKFD_IOC_WAIT_EVENTS),
    R(AMDKFD_IOC_SET_SCRATCH_BACKING_VA), R(AMDKFD_IOC_GET_TILE_CONFIG), R(AMDKFD_IOC_SET_TRAP_HANDLER),
    R(AMDKFD_IOC_ACQUIRE_VM), R(AMDKFD_IOC_ALLOC_MEMORY_OF_GPU), R(AMDKFD_IOC_FREE_MEMORY_OF_GPU),
    R(AMDKFD_IOC_MAP_MEMORY_TO_GPU), R(AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU), R(AMDKFD_IOC_SET_CU_MASK),
    R(AMDKFD_IOC_SET_XNACK_MODE), R(AMDKFD_IOC_SET_MEMORY_POLICY),
};
enum { REQUEST_COUNT = sizeof REQUESTS / sizeof *REQUESTS };

// Arguments that are not there, whatever the request, of any size.
static void arguments(void) {
    for (int i = 0; i < REQUEST_COUNT; i++) {
        unsigned long number = REQUESTS[i].number;
        size_t bytes = REQUESTS[i].bytes;
        void* wild[] = {NULL, (void*)1, NOWHERE, hole, at_edge(1), (void*)-1, (void*)-PAGE, (void*)(1ull << 47),
                        (void*)(1ull << 63)};
        for (unsigned k = 0; k < sizeof wild / sizeof *wild; k++) EXPECT(EFAULT, ioctl(kfd, number, wild[k]));
        if (bytes > 4) EXPECT(EFAULT, ioctl(kfd, number, at_edge(4)));
    }
    // Answers that cannot be written.
    EXPECT(EFAULT, ioctl(kfd, AMDKFD_IOC_GET_VERSION, constant));
    EXPECT(EFAULT, ioctl(kfd, AMDKFD_IOC_GET_CLOCK_COUNTERS, constant));
    // At the last bytes there are, and misaligned.
    struct kfd_ioctl_get_version_args* version = at_edge(sizeof *version);
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_GET_VERSION, version));
    SAME(1, version->major_version);
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_GET_VERSION, page + 3));
    // Requests that there are not, by number or by type, and longer or shorter ones than those known.
    memset(page, 0, PAGE);
    for (unsigned number = 0x30; number < 0x100; number++) {
        EXPECT(ENOTTY, ioctl(kfd, _IOWR('K', number, uint64_t), page));
        EXPECT(ENOTTY, ioctl(kfd, _IOWR('K', number, uint64_t), NULL));
    }
    EXPECT(0, ioctl(kfd, _IOC(3, 'K', 1, 0x3fff), page));
    EXPECT(0, ioctl(kfd, _IOC(3, 'K', 1, 1), at_edge(1)));
    EXPECT(EFAULT, ioctl(kfd, _IOC(3, 'K', 1, 0x3fff), at_edge(7)));
    EXPECT(EBADF, ioctl(-1, AMDKFD_IOC_GET_VERSION, page));
}

static int allocate(uint64_t address, uint64_t bytes, uint64_t host, uint32_t flags, uint64_t* handle) {
    struct kfd_ioctl_alloc_memory_of_gpu_args a = {
        .va_addr = address, .size = bytes, .mmap_offset = host, .gpu_id = card, .flags = flags};
    int errno_ = ERRNO(ioctl(kfd, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, &a));
    if (handle) *handle = a.handle;
    return errno_;
}
static int map(uint64_t handle, const void* ids, uint32_t count) {
    struct kfd_ioctl_map_memory_to_gpu_args a = {
        .handle = handle, .device_ids_array_ptr = (uintptr_t)ids, .n_devices = count};
    return ERRNO(ioctl(kfd, AMDKFD_IOC_MAP_MEMORY_TO_GPU, &a));
}
static int unmap(uint64_t handle, const void* ids, uint32_t count) {
    struct kfd_ioctl_unmap_memory_from_gpu_args a = {
        .handle = handle, .device_ids_array_ptr = (uintptr_t)ids, .n_devices = count};
    return ERRNO(ioctl(kfd, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, &a));
}
static int release(uint64_t handle) {
    struct kfd_ioctl_free_memory_of_gpu_args a = {.handle = handle};
    return ERRNO(ioctl(kfd, AMDKFD_IOC_FREE_MEMORY_OF_GPU, &a));
}

enum {
    VRAM = KFD_IOC_ALLOC_MEM_FLAGS_VRAM, HOST = KFD_IOC_ALLOC_MEM_FLAGS_GTT, USER = KFD_IOC_ALLOC_MEM_FLAGS_USERPTR,
    BELL = KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, MMIO = KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP,
    WRITABLE = (int)KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
};

static void memory(void) {
    uint64_t handle, other;
    for (int i = 0; i < 6; i++) {
        const uint64_t shapes[][2] = {{BASE, 0}, {BASE, 5}, {BASE + 8, PAGE}, {-PAGE, PAGE}, {BASE, -PAGE}, {1, 1}};
        SAME(EINVAL, allocate(shapes[i][0], shapes[i][1], 0, VRAM, NULL));
    }
    SAME(ENOMEM, allocate(BASE, 1ull << 40, 0, VRAM, NULL));
    SAME(ENOMEM, allocate(BASE, 1ull << 62, 0, HOST, NULL));
    SAME(ENOMEM, allocate(BASE, 1ull << 47, 0, HOST, NULL));
    SAME(ENOMEM, allocate(BASE, 1ull << 46, 0, HOST, NULL));
    SAME(EINVAL, allocate(BASE, 1 << 20, 0, BELL, NULL));
    SAME(EINVAL, allocate(BASE, 1 << 20, 0, MMIO, NULL));
    SAME(EINVAL, allocate(BASE, PAGE, (uintptr_t)page + 8, USER, NULL));
    SAME(EFAULT, allocate(BASE, PAGE, 0, USER, NULL));
    SAME(EFAULT, allocate(BASE, PAGE, (uintptr_t)hole, USER, NULL));
    SAME(EFAULT, allocate(BASE, 64 * PAGE, (uintptr_t)page, USER, NULL));
    SAME(EFAULT, allocate(BASE, PAGE, (uintptr_t)NOWHERE, USER, NULL));
    SAME(EFAULT, allocate(BASE, PAGE, 1ull << 63, USER, NULL));

    SAME(0, allocate(BASE, 4 * PAGE, 0, VRAM | WRITABLE, &handle));
    SAME(EFAULT, map(handle, NULL, 1));
    SAME(EFAULT, map(handle, NOWHERE, 1));
    *(uint32_t*)at_edge(4) = card;
    SAME(EFAULT, map(handle, at_edge(4), 2));
    SAME(EINVAL, map(handle, &card, 0));
    SAME(EINVAL, map(handle, &card, -1));
    uint32_t foreign[] = {card, card + 1};
    SAME(EINVAL, map(handle, foreign, 2));
    SAME(EINVAL, map(handle + 1000, &card, 1));
    SAME(EINVAL, map(0, &card, 1));
    SAME(0, map(handle, at_edge(4), 1));
    SAME(0, map(handle, &card, 1));
    // Another at the same addresses, in part or in whole, neither gets in nor takes the first away.
    for (int pages = -1; pages < 4; pages++) {
        SAME(0, allocate(BASE + pages * PAGE, 2 * PAGE, 0, VRAM, &other));
        SAME(EINVAL, map(other, &card, 1));
        SAME(0, unmap(other, &card, 1));
        SAME(0, release(other));
    }
    SAME(EFAULT, unmap(handle, NULL, 1));
    SAME(EINVAL, unmap(handle, &card, 0));
    SAME(0, unmap(handle, &card, 1));
    SAME(0, unmap(handle, &card, 1));
    SAME(0, release(handle));
    SAME(EINVAL, release(handle));
    SAME(EINVAL, unmap(handle, &card, 1));
    // Addresses that no program has.
    const uint64_t odd[] = {0, 1ull << 47, (1ull << 47) - PAGE, 1ull << 60};
    for (int i = 0; i < 4; i++) {
        SAME(0, allocate(odd[i], 2 * PAGE, 0, HOST, &handle));
        SAME(EINVAL, map(handle, &card, 1));
        SAME(0, release(handle));
    }
    // The memory itself stays as large as it is.
    EXPECT(EPERM, ftruncate(kfd, 0));
}

static void events(void) {
    struct kfd_event_data list[4] = {0};
    struct kfd_ioctl_wait_events_args wait = {.events_ptr = (uintptr_t)list, .num_events = 4};
    struct kfd_ioctl_create_event_args made = {0};
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_CREATE_EVENT, &made));
    EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_WAIT_EVENTS, &wait));
    for (int i = 0; i < 4; i++) list[i].event_id = made.event_id;
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_WAIT_EVENTS, &wait));
    SAME(KFD_IOC_WAIT_RESULT_TIMEOUT, wait.wait_result);
    void* wild[] = {NULL, (void*)8, NOWHERE, hole, at_edge(sizeof list - 1), (void*)-16};
    for (unsigned i = 0; i < sizeof wild / sizeof *wild; i++) {
        wait.events_ptr = (uintptr_t)wild[i];
        EXPECT(EFAULT, ioctl(kfd, AMDKFD_IOC_WAIT_EVENTS, &wait));
    }
    wait.events_ptr = (uintptr_t)list;
    const uint32_t counts[] = {4097, 1u << 27, 1u << 31, -1};
    for (int i = 0; i < 4; i++) {
        wait.num_events = counts[i];
        EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_WAIT_EVENTS, &wait));
    }
    // What only tells may be where nothing can be written.
    struct kfd_ioctl_set_event_args told = {.event_id = made.event_id};
    memcpy(page, &told, sizeof told);
    mprotect(page, PAGE, PROT_READ);
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_SET_EVENT, page));
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    const uint32_t ids[] = {0, 4096, 1u << 30, -1};
    for (int i = 0; i < 4; i++) {
        struct kfd_ioctl_set_event_args set = {.event_id = ids[i]};
        EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_SET_EVENT, &set));
        EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_RESET_EVENT, &set));
        EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_DESTROY_EVENT, &set));
    }
    // As many as there can be, and no more; then it goes on.
    static uint32_t all[4096];
    int count = 0;
    while (count < 4096 && ioctl(kfd, AMDKFD_IOC_CREATE_EVENT, &made) == 0) all[count++] = made.event_id;
    SAME(ENOSPC, errno);
    while (count) {
        struct kfd_ioctl_destroy_event_args gone = {.event_id = all[--count]};
        EXPECT(0, ioctl(kfd, AMDKFD_IOC_DESTROY_EVENT, &gone));
    }
    struct kfd_process_device_apertures room;
    struct kfd_ioctl_get_process_apertures_new_args apertures = {.num_of_nodes = 1};
    void* places[] = {(void*)8, NOWHERE, hole, at_edge(sizeof room - 1), constant};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        apertures.kfd_process_device_apertures_ptr = (uintptr_t)places[i];
        EXPECT(EFAULT, ioctl(kfd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &apertures));
    }
    apertures.kfd_process_device_apertures_ptr = (uintptr_t)&room;
    EXPECT(0, ioctl(kfd, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, &apertures));
    SAME(card, room.gpu_id);
}

// A queue whose ring is at `ring`: an errno, and its number and doorbell.
static int create(uint64_t ring, uint64_t bytes, uint64_t read, uint64_t write, uint32_t kind,
                  struct kfd_ioctl_create_queue_args* out) {
    *out = (struct kfd_ioctl_create_queue_args){
        .ring_base_address = ring, .ring_size = bytes, .read_pointer_address = read, .write_pointer_address = write,
        .queue_type = kind, .gpu_id = card, .queue_percentage = 100};
    return ERRNO(ioctl(kfd, AMDKFD_IOC_CREATE_QUEUE, out));
}
static int destroy(uint32_t id) {
    struct kfd_ioctl_destroy_queue_args a = {.queue_id = id};
    return ERRNO(ioctl(kfd, AMDKFD_IOC_DESTROY_QUEUE, &a));
}

enum { AQL = KFD_IOC_QUEUE_TYPE_COMPUTE_AQL, SDMA = KFD_IOC_QUEUE_TYPE_SDMA };

static void queues(void) {
    struct kfd_ioctl_create_queue_args queue;
    // The program's own memory is the card's too.
    enum { BYTES = 16 * PAGE };
    char* host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *bells = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, kfd, 0), handle, bell;
    if (host == MAP_FAILED || bells == MAP_FAILED) exit(3);
    uint64_t at = (uintptr_t)host, last = at + BYTES - PAGE;
    SAME(0, allocate(at, BYTES, at, USER | WRITABLE, &handle));
    SAME(0, map(handle, &card, 1));
    // Doorbells where they are not.
    SAME(0, allocate(BASE, 8192, 0, BELL, &bell));
    SAME(0, map(bell, &card, 1));
    const uint64_t bad[] = {0, 1, (uintptr_t)NOWHERE, (uintptr_t)hole, at + 4, at + BYTES, -8, 1ull << 63};
    for (int i = 0; i < 8; i++) {
        SAME(EFAULT, create(bad[i], 4096, last, last + 8, AQL, &queue));
        SAME(EFAULT, create(at, 4096, bad[i], last + 8, SDMA, &queue));
        SAME(EFAULT, create(at, 4096, last, bad[i], AQL, &queue));
    }
    const uint32_t sizes[] = {0, 1, 512, 4097, 3 << 12, -1};
    for (int i = 0; i < 6; i++) SAME(EINVAL, create(at, sizes[i], last, last + 8, AQL, &queue));
    SAME(EINVAL, create(at, 4096, last, last + 8, 77, &queue));
    SAME(EINVAL, destroy(12345));
    struct kfd_ioctl_update_queue_args update = {.queue_id = 12345};
    EXPECT(EINVAL, ioctl(kfd, AMDKFD_IOC_UPDATE_QUEUE, &update));

    // Rings full of anything, read from anywhere, longer than what is mapped. Whatever a queue thinks of it, it can be ended.
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < BYTES; i++) host[i] = rand();
        for (int i = 0; i < BYTES; i += 64) host[i] = (char[]){2, 0, 3, 5, 8, 1, 11, 6}[rand() % 8];
        // Pointers that lead somewhere.
        for (int i = 8; i < BYTES; i += 8)
            if (rand() % 4 == 0) *(uint64_t*)(host + i) = at + (rand() % BYTES & -8);
        uint64_t *read = (uint64_t*)(host + BYTES - PAGE), *write = read + 1;
        *read = round % 4 ? rand() % 16 * 64 : -1ull - rand() % 64;
        *write = *read + (round % 3 ? 4096 : 1ull << 63);
        SAME(0, create(at, round % 5 ? 4096 : 1u << 31, (uintptr_t)read, (uintptr_t)write, round % 2 ? AQL : SDMA, &queue));
        bells[(queue.doorbell_offset & 8191) / 8] = round;
        usleep(2000);
        SAME(0, destroy(queue.queue_id));
        SAME(EINVAL, destroy(queue.queue_id));
    }
    // Each stands for a doorbell; there is an end of them.
    uint32_t ids[256];
    int count = 0;
    while (count < 256 && create(at, 4096, last, last + 8, AQL, &queue) == 0) ids[count++] = queue.queue_id;
    SAME(1, count < 256);
    while (count) SAME(0, destroy(ids[--count]));
    SAME(0, release(bell));
    SAME(0, release(handle));
}

// Any request, with fields that are numbers of ours, small, or wild.
static void anything(int rounds) {
    for (int round = 0; round < rounds; round++) {
        const struct request* request = &REQUESTS[rand() % REQUEST_COUNT];
        uint64_t fields[16];
        for (int i = 0; i < 16; i++) {
            const uint64_t values[] = {0, rand() % 64, card, (uint64_t)card << 32, card | (uint64_t)rand() << 32, (uintptr_t)hole,
                                       BASE + rand() % 64 * PAGE, rand() % 64 * PAGE, -1, 1ull << 63 | rand(), (uintptr_t)constant};
            fields[i] = values[rand() % 11];
        }
        char* at = at_edge(request->bytes);
        memcpy(at, fields, request->bytes);
        // No waits.
        if (request->number == AMDKFD_IOC_WAIT_EVENTS) ((struct kfd_ioctl_wait_events_args*)at)->timeout = 0;
        ioctl(kfd, request->number, rand() % 16 ? at : at + 1);
    }
}

// Functions of the C library that the card stands before, and the render node behind them.
static void calls(void) {
    struct stat out;
    const char* wild[] = {NULL, (char*)1, NOWHERE, hole, (char*)-1};
    for (int i = 0; i < 5; i++) {
        const char* volatile path = wild[i];
        EXPECT(EFAULT, open(path, O_RDONLY));
        EXPECT(EFAULT, openat(AT_FDCWD, path, O_RDONLY));
        EXPECT(EFAULT, access(path, R_OK));
        EXPECT(EFAULT, stat(path, &out));
        EXPECT(EFAULT, lstat(path, &out));
        EXPECT(EFAULT, (int)readlink(path, page, PAGE));
        SAME(0, fopen(path, "r") != NULL);
    }
    // A path that ends with its page; one that does not end at all.
    strcpy(at_edge(9), "/dev/kfd");
    int fd = open(at_edge(9), O_RDWR);
    SAME(1, fd >= 0);
    close(fd);
    memset(page, '/', PAGE);
    EXPECT(EFAULT, open(page + 8, O_RDONLY));
    EXPECT(EFAULT, stat("/dev/kfd", (struct stat*)hole));

    // The render node: a device of that number, whose requests refuse what is not there.
    struct stat node;
    int render = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
    SAME(1, render >= 0);
    SAME(0, fstat(render, &node));
    SAME(1, S_ISCHR(node.st_mode) && node.st_rdev == makedev(226, 128));
    SAME(0, stat("/dev/dri/renderD128", &node));
    SAME(1, S_ISCHR(node.st_mode) && node.st_rdev == makedev(226, 128));
    const int known[] = {0x00, 0x09, 0x0c, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
                         0x50, 0x51, 0x52, 0xbf, 0xc0, 0xc3, 0xc4, 0xc5, 0xca, 0xcb, 0xcc, 0xcd};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        for (int w = 0; w < 5; w++)
            EXPECT(EFAULT, ioctl(render, _IOC(_IOC_READ | _IOC_WRITE, 'd', known[i], 64), wild[w]));
    EXPECT(EINVAL, ioctl(render, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x7f, 64), page));
    // A buffer of no bytes, a context that there is not, a job without parts.
    memset(page, 0, 256);
    EXPECT(EINVAL, ioctl(render, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x40, 32), page));
    EXPECT(EINVAL, ioctl(render, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x44, 24), page));
    EXPECT(ENOENT, ioctl(render, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x41, 8), page));
    SAME(0, close(render));
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    unsigned seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    printf("seed %u\n", seed);
    srand(seed);
    FILE* node = fopen("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "r");
    if (!node || fscanf(node, "%u", &card) != 1) return 3;
    fclose(node);
    kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
    // Where the kernel puts nothing by itself: nobody fills the hole.
    page = mmap((void*)0x123450000000, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (kfd < 0 || page == MAP_FAILED) return 3;
    constant = page + 2 * PAGE;
    hole = page + PAGE;
    mprotect(constant, PAGE, PROT_READ);
    munmap(hole, PAGE);
    munmap(NOWHERE, PAGE);

    const struct {
        const char* name;
        void (*run)(void);
    } parts[] = {{"arguments", arguments}, {"memory", memory}, {"events", events}, {"queues", queues}, {"calls", calls}};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        printf("%s\n", parts[i].name);
        parts[i].run();
    }
    printf("anything\n");
    anything(50000);
    // After all that it works.
    printf("events\n");
    for (uint32_t id = 1; id < 4096; id++) {
        struct kfd_ioctl_destroy_event_args gone = {.event_id = id};
        ioctl(kfd, AMDKFD_IOC_DESTROY_EVENT, &gone);
    }
    events();
    if (wrong) printf("%d wrong\n", wrong);
    else printf("passed\n");
    return wrong != 0;
}
