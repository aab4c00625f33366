/* What the C library promises of its functions for memory, in a yard of 64 MiB. */
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static int failed;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            failed = 1; \
        } \
    } while (0)

/* Beyond what the compiler may know. */
static volatile size_t huge = (size_t)1 << 40, too_large = SIZE_MAX - 100;

static void beyond_the_yard(void)
{
    /* Volatile: the compiler must not assume that a failed call has freed it. */
    void *volatile block = malloc(1000);
    memset(block, 7, 1000);
    for (int round = 0; round < 3; round++) {
        errno = 0;
        CHECK(malloc(huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(malloc(too_large) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(huge, huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(huge, 1) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(reallocarray(block, huge, huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(realloc(block, huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(aligned_alloc(64, huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(memalign(64, huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(valloc(huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(pvalloc(huge) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(pvalloc(too_large) == NULL && errno == ENOMEM);
    }
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)block)[i] == 7);
    free(block);
}

static void alignments(size_t most)
{
    for (size_t align = 8; align <= most; align *= 2) {
        void *block = NULL;
        CHECK(posix_memalign(&block, align, 100) == 0 && (uintptr_t)block % align == 0);
        free(block);
        block = memalign(align, 100);
        CHECK(block != NULL && (uintptr_t)block % align == 0);
        free(block);
    }
    void *untouched = &failed;
    errno = 77;
    CHECK(posix_memalign(&untouched, 24, 100) == EINVAL && untouched == &failed && errno == 77);
    CHECK(posix_memalign(&untouched, 64, huge) == ENOMEM && untouched == &failed && errno == 77);
    /* As in the C library: rounded up. */
    void *block = memalign(24, 100);
    CHECK(block != NULL && (uintptr_t)block % 32 == 0);
    free(block);
    errno = 0;
    CHECK(memalign(too_large, 100) == NULL && errno == EINVAL);
    block = valloc(1);
    CHECK((uintptr_t)block % 4096 == 0);
    free(block);
    block = pvalloc(1);
    CHECK((uintptr_t)block % 4096 == 0 && malloc_usable_size(block) >= 4096);
    free(block);
}

static void small_cases(void)
{
    void *first = malloc(0), *second = malloc(0);
    CHECK(first != NULL && second != NULL && first != second);
    free(first);
    CHECK(malloc_usable_size(NULL) == 0 && malloc_usable_size(second) > 0);
    CHECK(realloc(second, 0) == NULL);
    /* Freed once: no two blocks are at its place. */
    static int *numbers[2000];
    for (int i = 0; i < 2000; i++) {
        numbers[i] = malloc(sizeof(int));
        *numbers[i] = i;
    }
    for (int i = 0; i < 2000; i++) {
        CHECK(*numbers[i] == i);
        free(numbers[i]);
    }
    free(NULL);
    char *grown = realloc(NULL, 10);
    memset(grown, 3, 10);
    grown = realloc(grown, 20 * MIB);
    CHECK(grown != NULL && grown[0] == 3 && grown[9] == 3);
    free(grown);
}

static void error_number(void)
{
    for (int round = 0; round < 20; round++) {
        errno = 77;
        char *block = malloc(20 * MIB);
        CHECK(block != NULL && errno == 77);
        memset(block, 1, 20 * MIB);
        free(block);
        CHECK(errno == 77);
    }
}

/* Each function fails in a full yard as it does for a size that no yard has. */
static void refused(char *block)
{
    /* Volatile: the compiler must not assume that a failed call has freed it. */
    char *volatile held = block;
    void *untouched = &failed;
    errno = 0;
    CHECK(malloc(2 * MIB) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(2, MIB) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(realloc(held, 3 * MIB) == NULL && errno == ENOMEM && held[MIB - 1] == 1);
    errno = 0;
    CHECK(reallocarray(held, 3, MIB) == NULL && errno == ENOMEM && held[MIB - 1] == 1);
    errno = 0;
    CHECK(aligned_alloc(MIB, 2 * MIB) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(memalign(MIB, 2 * MIB) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(valloc(2 * MIB) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(pvalloc(2 * MIB) == NULL && errno == ENOMEM);
    CHECK(posix_memalign(&untouched, MIB, 2 * MIB) == ENOMEM && untouched == &failed);
}

/* Small blocks, which come from slabs, until there are no more. Each holds the address of the one before. */
static void full_of_small_blocks(void)
{
    void **newest = NULL, **block;
    size_t count = 0;
    errno = 0;
    while ((block = malloc(3000)) != NULL) {
        *block = newest;
        newest = block;
        count++;
    }
    CHECK(errno == ENOMEM);
    CHECK(count > 40 * MIB / 3072 && count < 64 * MIB / 3072);
    while ((block = newest) != NULL) {
        newest = *block;
        free(block);
    }
}

/* Fills the yard, which must end with a null pointer and not outside of the yard. */
static void full(void)
{
    for (int round = 0; round < 3; round++) {
        size_t count = 0;
        static char *blocks[100];
        errno = 0;
        while (count < 100 && (blocks[count] = malloc(MIB)) != NULL)
            memset(blocks[count++], 1, MIB);
        CHECK(count >= 40 && count < 64 && errno == ENOMEM);
        refused(blocks[0]);
        while (count > 0)
            free(blocks[--count]);
        char *again = calloc(30, MIB);
        CHECK(again != NULL);
        for (size_t at = 0; again != NULL && at < 30 * MIB; at += 4096)
            CHECK(again[at] == 0);
        free(again);
    }
}

/* Takes the largest alignment that the heap serves, in MiB. */
int main(int count, char **arguments)
{
    beyond_the_yard();
    alignments(count > 1 ? strtoul(arguments[1], NULL, 10) * MIB : MIB);
    small_cases();
    error_number();
    full();
    full_of_small_blocks();
    full();
    if (!failed)
        puts("done");
    return failed;
}
