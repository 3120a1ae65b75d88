#include "check.h"
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>
// Before its first use of the card a process may fork and both use one; afterwards a child has none, and is told so.
__global__ void kernel(int* a) { a[threadIdx.x] = int(threadIdx.x) * 3; }
static void use() {
    Device<int> d(64);
    kernel<<<1, 64>>>(d.data);
    std::vector<int> want(64);
    for (int i = 0; i < 64; i++) want[i] = i * 3;
    require_same("use", d.host(), want);
}
// Runs `body` in a child; its exit status.
template <class F> static int child(F body) {
    fflush(stdout);
    pid_t pid = fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
        alarm(60);
        body();
        fflush(stdout);
        _Exit(0);
    }
    int status = -1;
    require(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}
int main(int argc, char** argv) {
    if (argc > 1) return use(), 0;
    require(child(use) == 0, "a child that uses the card before its parent does");
    use();
    require(child([] {}) == 0, "a child that does nothing");
    require(child([&] { execl(argv[0], argv[0], "child", nullptr); }) == 0, "a child that executes a program");
    // It gets no memory, and does not wait for ever; runtimes differ in whether they tell or end the child.
    const int status = child([&] {
        int* d = nullptr;
        if (hipMalloc(reinterpret_cast<void**>(&d), 64 << 20) == hipSuccess) _Exit(9);
    });
    require(!(WIFEXITED(status) && WEXITSTATUS(status) == 9), "a child that goes on with its parent's card");
    require(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM), "a child that waits for its parent's card");
    use();
    passed();
}
