/* Gives the hooks of a yard to all arenas of jemalloc, those that a test creates included. The linker's option `--wrap` replaces the functions
   below. Compiled once for each prefix of jemalloc's internal names. */
#include <stdbool.h>
#include <stddef.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define REAL(name) JOIN(__real_, JOIN(PREFIX, name))
#define WRAP(name) JOIN(__wrap_, JOIN(PREFIX, name))
#define NAME(name) JOIN(PREFIX, name)

const void *frameyard_extent_hooks(void);

extern const void *const NAME(ehooks_default_extent_hooks)[];
void *REAL(base_new)(void *thread, unsigned arena, const void *hooks, bool metadata);
void *REAL(b0get)(void);
void *NAME(base_extent_hooks_set)(void *base, const void *hooks);

static const void *yard_hooks;

/* Arena 0: the first call, in jemalloc's initialisation and under its lock, sets the hooks. */
void *WRAP(b0get)(void)
{
    void *base = REAL(b0get)();
    static bool made;
    if (!made && base != NULL) {
        made = true;
        yard_hooks = frameyard_extent_hooks();
        if (yard_hooks != NULL)
            NAME(base_extent_hooks_set)(base, yard_hooks);
    }
    return base;
}

/* Other arenas. A test's own hooks stay. */
void *WRAP(base_new)(void *thread, unsigned arena, const void *hooks, bool metadata)
{
    bool is_default = hooks == (const void *)NAME(ehooks_default_extent_hooks);
    return REAL(base_new)(thread, arena, is_default && yard_hooks != NULL ? yard_hooks : hooks, metadata);
}
