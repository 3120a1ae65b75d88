void main() {
    if (index() < 3u) y[d + index()] = (x[index()] ^ a) % (b + 1u);
}
