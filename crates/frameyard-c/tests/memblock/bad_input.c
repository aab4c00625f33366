/* Arguments and fields that cannot be true lead to an error number or to nothing. */
#include "check.h"

#define SLOTS 4

static struct memblock_region memory_slots[SLOTS], reserved_slots[SLOTS];
static char last[256];
static int lines;

static void print(const char *line)
{
  strncpy(last, line, sizeof last - 1);
  lines++;
}

static void fresh(void)
{
  reset(memory_slots, SLOTS, reserved_slots);
  CHECK(memblock_add(MIB(1), MIB(1)) == 0);
  last[0] = 0;
}

/* Every way in, with a list whose fields cannot be true. */
static void refuses_all(const char *reason)
{
  struct memblock before = memblock;
  phys_addr_t start, end;

  CHECK(memblock_add(MIB(8), MIB(1)) == -22 && strstr(last, reason) != NULL);
  CHECK(memblock_reserve(MIB(8), MIB(1)) == -22 && memblock_remove(0, MIB(8)) == -22);
  CHECK(memblock_phys_free(0, MIB(8)) == -22 && memblock_mark_nomap(0, MIB(8)) == -22);
  CHECK(memblock_alloc(64, 64) == NULL && memblock_phys_alloc(64, 64) == 0);
  memblock_trim_memory(4096);
  memblock_cap_memory_range(MIB(1), 4096);
  memblock_enforce_memory_limit(4096);
  memblock_is_memory(MIB(1));
  memblock_end_of_DRAM();
  memblock_dump_all();
  {
    u64 at;
    for_each_free_mem_range(at, NUMA_NO_NODE, MEMBLOCK_NONE, &start, &end, NULL) CHECK(start <= end);
    for_each_free_mem_range_reverse(at, NUMA_NO_NODE, MEMBLOCK_NONE, &start, &end, NULL) CHECK(start <= end);
  }
  CHECK(memcmp(&before, &memblock, sizeof before) == 0);
}

static void written_state(void)
{
  fresh();
  memblock.memory.cnt = SLOTS + 1;
  refuses_all("more regions than slots");
  fresh();
  memblock.reserved.cnt = ~0UL;
  refuses_all("more regions than slots");
  fresh();
  memblock.reserved.max = 0;
  refuses_all("no slots");
  fresh();
  memblock.memory.max = ~0UL;
  refuses_all("more slots than memory has room for");
  fresh();
  memblock.reserved.regions = NULL;
  refuses_all("no array");
  CHECK(!memblock_is_memory(MIB(1)) && memblock_end_of_DRAM() == 0);
  fresh();
  memblock.memory.regions = (struct memblock_region *)((char *)memory_slots + 4);
  refuses_all("misaligned");
  fresh();
  memblock.reserved.regions = memory_slots + 1;
  refuses_all("slots of the memory list");
  fresh();
  memory_slots[1].base = 5;
  memory_slots[1].size = 5;
  memblock.memory.cnt = 2;
  refuses_all("out of order");
  fresh();
  memblock.memory.cnt = 2;
  refuses_all("region 1 of the memory list is empty");
  fresh();
  memory_slots[0].size = MEMBLOCK_ALLOC_ANYWHERE;
  refuses_all("region 0 of the memory list");
}

static void arguments(void)
{
  struct memblock_type other = memblock.memory;
  u64 at = 0;
  int i = 0, before;

  fresh();
  before = lines;
  CHECK(memblock_alloc(0, 64) == NULL && memblock_phys_alloc(0, 64) == 0 && lines == before + 2);
  CHECK(memblock_alloc(64, 48) == NULL && strstr(last, "must be a power of two") != NULL);
  CHECK(memblock_alloc(MEMBLOCK_ALLOC_ANYWHERE, 1) == NULL && memblock_alloc(64, (phys_addr_t)1 << 63) == NULL);
  CHECK(memblock_alloc_range_nid(64, 64, MIB(2), MIB(1), NUMA_NO_NODE, false) == 0);
  CHECK(memblock_phys_alloc_try_nid(64, 64, -7) != 0 && memblock_phys_alloc_try_nid(64, 64, 1 << 30) != 0);
  CHECK(memblock_reserved_size() == 128);
  memblock_trim_memory(0);
  CHECK(strstr(last, "memblock_trim_memory: ") == last);
  memblock_trim_memory(48);
  CHECK(memblock_phys_mem_size() == MIB(1));
  CHECK(memblock_set_node(0, MIB(4), NULL, 1) == -22 && memblock_set_node(0, MIB(4), &other, 1) == -22);
  CHECK(memblock_set_node(0, 0, &memblock.memory, 1) == 0);
  CHECK(!memblock_overlaps_region(NULL, 0, MIB(4)));
  CHECK(memblock_add_node(MIB(2), MIB(1), -9, (enum memblock_flags)0x7fffffff) == 0 && memory_slots[1].nid == -9);
  CHECK(memblock_remove(MIB(2), MEMBLOCK_ALLOC_ANYWHERE) == 0 && memblock.memory.cnt == 1);
  __next_mem_range(NULL, 0, MEMBLOCK_NONE, &memblock.memory, NULL, NULL, NULL, NULL);
  __next_mem_range_rev(NULL, 0, MEMBLOCK_NONE, &memblock.memory, NULL, NULL, NULL, NULL);
  __next_mem_pfn_range(NULL, 0, NULL, NULL, NULL);
  __next_mem_range(&at, 0, MEMBLOCK_NONE, NULL, NULL, NULL, NULL, NULL);
  CHECK(at == ~(u64)0);
  at = (u64)77 << 32 | 1000;
  __next_mem_range_rev(&at, NUMA_NO_NODE, MEMBLOCK_NONE, &memblock.memory, &memblock.reserved, NULL, NULL, NULL);
  CHECK(at == 0xffffffff);
  i = -2147483647 - 1;
  __next_mem_pfn_range(&i, NUMA_NO_NODE, NULL, NULL, NULL);
  CHECK(i == 0);
  i = 2147483647;
  __next_mem_pfn_range(&i, NUMA_NO_NODE, NULL, NULL, NULL);
  CHECK(i == -1);
}

/* A full list that may not grow. An edit that fails changes nothing. */
static void full(void)
{
  struct memblock before;
  int i;

  fresh();
  for (i = 0; i < SLOTS; i++)
    CHECK(memblock_reserve(MIB(1) + KIB(8) * i, KIB(4)) == 0);
  before = memblock;
  CHECK(memblock_reserve(MIB(1) + KIB(64), KIB(4)) == -12);
  CHECK(memblock_phys_free(MIB(1), KIB(4)) == -12 && memblock_alloc(64, 64) == NULL);
  CHECK(memcmp(&before, &memblock, sizeof before) == 0);
  /* Two free slots in front of a split, as in the kernel. */
  memblock.reserved.cnt = 2;
  CHECK(memblock_phys_free(MIB(1), KIB(4)) == 0 && memblock.reserved.cnt == 1);
}

/* A list that may grow, and has no memory for it. */
static void no_memory(void)
{
  int i;

  fresh();
  memblock_allow_resize();
  memblock_set_current_limit(MIB(1));
  for (i = 0; i < SLOTS; i++)
    CHECK(memblock_reserve(MIB(1) + KIB(8) * i, KIB(4)) == 0);
  CHECK(memblock_reserve(MIB(1) + KIB(64), KIB(4)) == -12 && strstr(last, "cannot grow") != NULL);
  /* The memory found is at no address. */
  fresh();
  memblock_set_current_limit(MIB(1) + KIB(512));
  frameyard_memblock.va_offset = -(long long)(MIB(1) + KIB(508));
  CHECK(memblock_alloc(KIB(4), KIB(4)) == NULL && strstr(last, "not mapped") != NULL);
  CHECK(memblock.reserved.cnt == 0);
}

int main(void)
{
  frameyard_memblock.print = print;
  written_state();
  arguments();
  full();
  no_memory();
  printf("%d checks\n", checks);
  return 0;
}
