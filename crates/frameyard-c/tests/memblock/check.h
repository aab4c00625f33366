/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <memblock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int checks;

#define CHECK(condition)                                                            \
  do {                                                                              \
    checks++;                                                                       \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

#define KIB(n) ((phys_addr_t)(n) << 10)
#define MIB(n) ((phys_addr_t)(n) << 20)

/* Empties both lists, as the kernel's tests do. */
static inline void reset(struct memblock_region *memory, unsigned long max, struct memblock_region *reserved)
{
  memset(memory, 0, max * sizeof *memory);
  memset(reserved, 0, max * sizeof *reserved);
  memblock.bottom_up = false;
  memblock.current_limit = MEMBLOCK_ALLOC_ANYWHERE;
  memblock.memory.regions = memory;
  memblock.memory.cnt = 0;
  memblock.memory.max = max;
  memblock.memory.total_size = 0;
  memblock.reserved.regions = reserved;
  memblock.reserved.cnt = 0;
  memblock.reserved.max = max;
  memblock.reserved.total_size = 0;
}

#endif
