// What the programs here share: fresh random inputs by a seed that failures print, and checks against host arithmetic.
#pragma once
#include <hip/hip_runtime.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

inline unsigned seed() {
    static unsigned value = [] {
        const char* given = getenv("SEED");
        return given ? unsigned(strtoul(given, nullptr, 0)) : std::random_device{}();
    }();
    return value;
}

inline std::mt19937_64& random_bits() {
    static std::mt19937_64 engine(seed());
    return engine;
}

[[noreturn]] inline void fail(const std::string& what) {
    printf("FAILED: %s (SEED=%u)\n", what.c_str(), seed());
    fflush(stdout);
    _Exit(1);
}

#define HIP(call)                                                                                          \
    do {                                                                                                   \
        hipError_t error_ = (call);                                                                        \
        if (error_ != hipSuccess) fail(std::string(#call) + ": " + hipGetErrorString(error_));             \
    } while (0)

inline void require(bool condition, const std::string& what) {
    if (!condition) fail(what);
}

// Same bits, or both not a number.
template <class T> bool same(T a, T b) {
    return memcmp(&a, &b, sizeof(T)) == 0 || (a != a && b != b);
}

template <class T> void require_same(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
    require(got.size() == want.size(), what + ": sizes");
    for (size_t i = 0; i < got.size(); i++)
        if (!same(got[i], want[i]))
            fail(what + "[" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", wanted " + std::to_string(want[i]));
}

// Device memory with a guard behind it; poisoned until written.
template <class T> struct Device {
    static constexpr size_t guard = 256;
    T* data = nullptr;
    size_t count;
    explicit Device(size_t n) : count(n) {
        HIP(hipMalloc(reinterpret_cast<void**>(&data), n * sizeof(T) + guard));
        HIP(hipMemset(data, 0xa5, n * sizeof(T) + guard));
    }
    explicit Device(const std::vector<T>& from) : Device(from.size()) {
        HIP(hipMemcpy(data, from.data(), count * sizeof(T), hipMemcpyHostToDevice));
    }
    Device(const Device&) = delete;
    ~Device() {
        if (data) (void)hipFree(data);
    }
    std::vector<T> host() const {
        std::vector<T> out(count);
        std::vector<unsigned char> behind(guard);
        HIP(hipMemcpy(out.data(), data, count * sizeof(T), hipMemcpyDeviceToHost));
        HIP(hipMemcpy(behind.data(), data + count, guard, hipMemcpyDeviceToHost));
        for (unsigned char byte : behind) require(byte == 0xa5, "bytes behind a buffer were written");
        return out;
    }
};

// Random bits, with the values on which arithmetic trips mixed in.
template <class T> std::vector<T> edgy(size_t n) {
    using L = std::numeric_limits<T>;
    const T edges[] = {T(0), T(-0.0), T(1), T(-1), L::max(), L::lowest(), L::min(), L::denorm_min(), L::infinity(),
                       -L::infinity(), L::quiet_NaN(), L::epsilon(), T(3), T(0.5)};
    std::vector<T> out(n);
    for (auto& value : out) {
        uint64_t bits = random_bits()();
        memcpy(&value, &bits, sizeof(T));
        if (bits >> 60 == 0) value = edges[(bits >> 8) % (sizeof(edges) / sizeof(T))];
        else if (bits >> 60 < 8) value = T(int64_t(bits) >> 40) / T(1024);
    }
    return out;
}

template <class T> std::vector<T> whole(size_t n) {
    std::vector<T> out(n);
    for (auto& value : out) {
        uint64_t bits = random_bits()();
        value = bits >> 61 == 0 ? T(bits & 7) - T(3) : T(bits);
    }
    return out;
}

inline void passed() {
    printf("passed\n");
    fflush(stdout);
}
