#include "check.h"
// Copies: asynchronous, in two and three dimensions, odd offsets and sizes, between all kinds of memory; fills.
static std::vector<uint8_t> bytes(size_t n) {
    std::vector<uint8_t> out(n);
    for (auto& x : out) x = uint8_t(random_bits()() >> 7);
    return out;
}
int main() {
    const size_t sizes[] = {1, 3, 4, 63, 64, 1000, 4097, 65537, 1 << 20, (5 << 20) + 13};
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (size_t n : sizes) {
        auto a = bytes(n + 8);
        Device<uint8_t> one(n + 8), two(n + 8);
        uint8_t* pinned = nullptr;
        HIP(hipHostMalloc(reinterpret_cast<void**>(&pinned), n + 8, 0));
        memcpy(pinned, a.data(), n + 8);
        HIP(hipMemcpyAsync(one.data, pinned, n + 8, hipMemcpyHostToDevice, stream));
        HIP(hipMemcpyAsync(two.data + 3, one.data + 1, n, hipMemcpyDeviceToDevice, stream));
        HIP(hipMemcpyAsync(two.data, one.data, 3, hipMemcpyDeviceToDevice, stream));
        std::vector<uint8_t> back(n + 3);
        HIP(hipMemcpyAsync(back.data(), two.data, n + 3, hipMemcpyDeviceToHost, stream));
        HIP(hipStreamSynchronize(stream));
        std::vector<uint8_t> want(a.begin(), a.begin() + 3);
        want.insert(want.end(), a.begin() + 1, a.begin() + 1 + n);
        require_same("linear " + std::to_string(n), back, want);
        require_same("source " + std::to_string(n), one.host(), a);
        memset(pinned, 0, n + 8);
        HIP(hipMemcpy(pinned, two.data, n, hipMemcpyDeviceToHost));
        require(memcmp(pinned, back.data(), n) == 0, "into pinned memory");
        HIP(hipHostFree(pinned));
    }
    for (size_t width : {1, 7, 64, 200})
        for (size_t height : {1, 5, 33}) {
            auto a = bytes(256 * height);
            void* pitched = nullptr;
            size_t pitch = 0;
            HIP(hipMallocPitch(&pitched, &pitch, width, height));
            HIP(hipMemset2D(pitched, pitch, 0x11, width, height));
            HIP(hipMemcpy2DAsync(pitched, pitch, a.data(), 256, width, height, hipMemcpyHostToDevice, stream));
            std::vector<uint8_t> back(201 * height, 0xee);
            HIP(hipMemcpy2DAsync(back.data(), 201, pitched, pitch, width, height, hipMemcpyDeviceToHost, stream));
            HIP(hipStreamSynchronize(stream));
            for (size_t y = 0; y < height; y++)
                for (size_t x = 0; x < 201 && y * 201 + x < back.size(); x++)
                    require(back[y * 201 + x] == (x < width ? a[y * 256 + x] : 0xee), "two dimensions");
            HIP(hipFree(pitched));
        }
    const hipExtent extent = {48, 9, 5};
    auto volume = bytes(48 * 9 * 5);
    hipPitchedPtr place;
    HIP(hipMalloc3D(&place, extent));
    hipMemcpy3DParms in = {}, out = {};
    in.srcPtr = make_hipPitchedPtr(volume.data(), 48, 48, 9);
    in.dstPtr = place;
    in.extent = extent;
    in.kind = hipMemcpyHostToDevice;
    HIP(hipMemcpy3D(&in));
    std::vector<uint8_t> part(20 * 4 * 3, 0);
    out.srcPtr = place;
    out.srcPos = make_hipPos(8, 2, 1);
    out.dstPtr = make_hipPitchedPtr(part.data(), 20, 20, 4);
    out.extent = {20, 4, 3};
    out.kind = hipMemcpyDeviceToHost;
    HIP(hipMemcpy3D(&out));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 20; x++)
                require(part[(z * 4 + y) * 20 + x] == volume[((z + 1) * 9 + y + 2) * 48 + x + 8], "three dimensions");
    HIP(hipFree(place.ptr));

    Device<uint32_t> words(999);
    HIP(hipMemsetD32(words.data, int(0xdeadbeef), 999));
    require_same("fill of words", words.host(), std::vector<uint32_t>(999, 0xdeadbeef));
    HIP(hipMemsetD16(words.data, 0x1234, 999));
    require(words.host()[498] == 0x12341234 && words.host()[499] == 0xdead1234, "fill of halves");
    HIP(hipMemsetAsync(words.data, 0x5a, 33, stream));
    HIP(hipStreamSynchronize(stream));
    require(words.host()[7] == 0x5a5a5a5a && words.host()[8] == 0x1234125a, "fill of bytes");
    HIP(hipStreamDestroy(stream));
    passed();
}
