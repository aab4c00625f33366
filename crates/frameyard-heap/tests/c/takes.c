/* Reads numbers. For each, allocates up to that number of blocks of 1 MiB, fills them, and prints how many it got. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    int wanted;
    while (scanf("%d", &wanted) == 1) {
        int count = 0;
        char *block;
        while (count < wanted && (block = malloc(1 << 20)) != NULL) {
            memset(block, 1, 1 << 20);
            count++;
        }
        printf("%d\n", count);
        fflush(stdout);
    }
    return 0;
}
