// What a table of the probe's says of this card and runtime, a line each.
#include <stdio.h>

int hipDeviceGetName(char *, int, int);
int hipDeviceGetPCIBusId(char *, int, int);
int hipRuntimeGetVersion(int *);

int main(void) {
    char name[256] = "", bus[64] = "";
    int version = 0;
    if (hipDeviceGetName(name, 255, 0) || hipDeviceGetPCIBusId(bus, 63, 0) || hipRuntimeGetVersion(&version))
        return 1;
    printf("%s\n%s\n%d.%d.%d\n", name, bus, version / 10000000, version / 100000 % 100, version % 100000);
    return 0;
}
