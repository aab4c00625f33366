/* Closes all descriptors, as servers do, and has other files under their numbers. Takes the path of a file. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        close(descriptor);
    for (int opened = 0; count > 1 && opened < 300; opened++)
        if (open(arguments[1], O_WRONLY | O_CREAT | O_APPEND, 0600) < 0)
            break;
    free(malloc(1000));
    return 0;
}
