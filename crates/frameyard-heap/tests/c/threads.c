/* Threads that end while others use what they allocated, and that fork and execute programs meanwhile. Takes the path of a program. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACES 64

static _Atomic(char *) places[PLACES];
static const char *program;

static void *work(void *argument)
{
    unsigned seed = (unsigned)(size_t)argument * 2654435761u + 1;
    for (int round = 0; round < 300; round++) {
        seed = seed * 1664525u + 1013904223u;
        size_t size = (size_t)16 << (seed >> 28);
        char *block = malloc(size);
        if (block == NULL)
            exit(3);
        block[0] = block[size - 1] = (char)seed;
        free(atomic_exchange(&places[seed >> 8 & (PLACES - 1)], block));
    }
    pid_t child = fork();
    if (child == 0) {
        /* The child has one thread, and goes on with its copy. */
        char *block = calloc(1, 3 << 20);
        if (block == NULL || block[1 << 20] != 0)
            _exit(4);
        free(block);
        execl(program, program, "-c", "exit 7", (char *)NULL);
        _exit(5);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
        exit(6);
    return NULL;
}

int main(int count, char **arguments)
{
    program = count > 1 ? arguments[1] : "/bin/sh";
    for (size_t generation = 0; generation < 10; generation++) {
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, work, (void *)(generation * 4 + i));
        for (size_t i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < PLACES; i++)
        free(places[i]);
    puts("done");
    return 0;
}
