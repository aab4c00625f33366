/* A library with thread-local memory. */
static __thread int counts[100];

int count_in_module(void)
{
    return ++counts[50];
}
