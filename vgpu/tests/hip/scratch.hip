#include "check.h"
#include <algorithm>
// Private arrays indexed by data live in scratch: sorted, permuted, of all widths, also by pointer.
__device__ __attribute__((noinline)) void insert(int* sorted, int count, int value) {
    int at = count;
    while (at > 0 && sorted[at - 1] > value) sorted[at] = sorted[at - 1], at--;
    sorted[at] = value;
}
__global__ void kernel(const int* a, int* out, double* sums) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sorted[24];
    char bytes[24];
    double weights[24];
    for (int k = 0; k < 24; k++) {
        insert(sorted, k, a[i * 24 + k]);
        bytes[a[i * 24 + k] & 15] = char(k);
        weights[(k * 7 + i) % 24] = k * 0.5;
    }
    for (int k = 0; k < 24; k++) out[i * 24 + k] = sorted[k] + bytes[a[i * 24] & 15];
    double sum = 0;
    for (int k = 0; k < 24; k++) sum += weights[k] * k;
    sums[i] = sum;
}
int main() {
    const int n = 333 * 3;
    auto a = whole<int>(n * 24);
    Device<int> da(a), out(n * 24);
    Device<double> sums(n);
    kernel<<<3, 333>>>(da.data, out.data, sums.data);
    std::vector<int> want(n * 24);
    std::vector<double> want_sums(n);
    for (int i = 0; i < n; i++) {
        std::vector<int> row(&a[i * 24], &a[i * 24] + 24);
        char bytes[16];
        double weights[24];
        for (int k = 0; k < 24; k++) bytes[row[k] & 15] = char(k), weights[(k * 7 + i) % 24] = k * 0.5;
        const int extra = bytes[row[0] & 15];
        std::sort(row.begin(), row.end());
        for (int k = 0; k < 24; k++) want[i * 24 + k] = row[k] + extra, want_sums[i] += weights[k] * k;
    }
    require_same("sorted", out.host(), want);
    require_same("weighted", sums.host(), want_sums);
    passed();
}
