// A host whose log throws, and that catches what comes back from the plugin.
#include <cstdint>
#include <stdexcept>

extern "C" void throwing_log(int, const char *message) { throw std::runtime_error(message); }

extern "C" int caught(int (*applicable)(void *, const void *, int64_t *, uint32_t, uint32_t *), void *handle,
                      const void *graph, int64_t *ids, uint32_t most, uint32_t *count) {
    try {
        return applicable(handle, graph, ids, most, count);
    } catch (const std::runtime_error &) {
        return 1007;
    }
}
