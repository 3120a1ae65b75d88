#include "check.h"
// Recursive functions, and calls through pointers: calls, returns and a stack.
__host__ __device__ __attribute__((noinline)) unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
__host__ __device__ __attribute__((noinline)) int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
using Function = int (*)(int);
__device__ __attribute__((noinline)) int twice(int x) { return 2 * x; }
__device__ __attribute__((noinline)) int square(int x) { return x * x; }
__device__ Function functions[] = {fibonacci, twice, square};
__global__ void kernel(int* out) {
    int i = threadIdx.x;
    out[i] = int(ackermann(i % 3, i % 4)) * 1000 + fibonacci(i % 9);
    out[64 + i] = functions[i % 3](i % 7);
}
int main() {
    Device<int> out(128);
    kernel<<<1, 64>>>(out.data);
    std::vector<int> want(128);
    for (int i = 0; i < 64; i++) {
        want[i] = int(ackermann(i % 3, i % 4)) * 1000 + fibonacci(i % 9);
        const int x = i % 7;
        want[64 + i] = i % 3 == 0 ? fibonacci(x) : i % 3 == 1 ? 2 * x : x * x;
    }
    require_same("recursion", out.host(), want);
    passed();
}
