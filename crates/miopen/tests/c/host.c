/* Loads the client for itself alone, as Python loads its extensions: `host CLIENT`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *client = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!client) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*run)(void) = (int (*)(void))dlsym(client, "client");
    return run ? run() : 1;
}
