// Who answers for hipHostMalloc, by each way to find it: lookup PLUGIN.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char* owner(void* at) {
    Dl_info info;
    if (!at || !dladdr(at, &info)) return "nobody";
    const char* slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

int main(int count, char** arguments) {
    if (count != 2) return 2;
    // Before HIP is there: the call must fail, not crash.
    int (*early)(void**, size_t, unsigned) = (int (*)(void**, size_t, unsigned))dlsym(RTLD_DEFAULT, "hipHostMalloc");
    void* memory = NULL;
    printf("early %d\n", early ? early(&memory, 64, 0) : 302);
    void* plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return puts(dlerror()), 1;
    int (*flags)(void) = (int (*)(void))dlsym(plugin, "flags_of_host_memory");
    printf("plugin %d\n", flags());
    void* hip = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    if (!hip) return puts(dlerror()), 1;
    printf("dlsym %s\n", owner(dlsym(RTLD_DEFAULT, "hipHostMalloc")));
    printf("dlvsym %s\n", owner(dlvsym(RTLD_DEFAULT, "hipHostMalloc", "hip_4.2")));
    printf("handle %s\n", owner(dlsym(hip, "hipHostMalloc")));
    puts("passed");
    return 0;
}
