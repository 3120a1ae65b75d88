shared uint total, most, odd;
void main() {
    uint i = index(), l = lane();
    if (l == 0u) {
        total = 0u;
        most = 0u;
        odd = 0u;
    }
    barrier();
    uint v = i < count ? x[i] : i ^ b;
    uint sum = subgroupAdd(v), high = subgroupMax(v);
    uint ones = subgroupBallotBitCount(subgroupBallot((v & 1u) != 0u));
    if (subgroupElect()) {
        atomicAdd(total, sum);
        atomicMax(most, high);
        atomicAdd(odd, ones);
    }
    barrier();
    if (l == 0u && group() < uint(y.length())) y[group()] = (total ^ (most * a)) + odd;
}
