/* Loads libraries with thread-local memory while threads allocate. After each `dlopen`, the first access of a thread to such memory has
   the dynamic linker reallocate a table, wherever that access is. Takes the paths of the libraries. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3

static atomic_int step, finished;

static void *allocate(void *unused)
{
    (void)unused;
    int seen = 0;
    while (!finished) {
        if (step == seen)
            continue;
        seen = step;
        /* No cache has such a block: the hook for extents is called first of all. */
        for (size_t size = 3000000; size > 10000; size /= 3) {
            char *block = malloc(size + (size_t)seen * 4096);
            if (block == NULL)
                exit(3);
            memset(block, 1, size);
            free(block);
        }
    }
    return NULL;
}

int main(int count, char **paths)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, allocate, NULL);
    int sum = 0;
    void *libraries[200];
    for (int i = 1; i < count && i < 200; i++) {
        libraries[i] = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        if (libraries[i] == NULL) {
            puts(dlerror());
            return 2;
        }
        step++;
        /* A pointer to an object holds one to a function (POSIX). */
        int (*counted)(void);
        *(void **)&counted = dlsym(libraries[i], "count_in_module");
        sum += counted();
        void *block = malloc((size_t)i * 100000);
        free(block);
    }
    finished = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < count && i < 200; i++)
        dlclose(libraries[i]);
    printf("%d\n", sum);
    return 0;
}
