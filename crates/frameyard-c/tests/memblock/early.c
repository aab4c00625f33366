/* A map from the firmware's report to the free ranges, with every function of memblock.h. */
#include "check.h"

#define SLOTS 128

static struct memblock_region memory_slots[SLOTS], reserved_slots[SLOTS];

/* Physical memory from 1 MiB on. */
static unsigned char arena[1 << 20] __attribute__((aligned(4096)));
#define ARENA MIB(1)

static char text[8192];

static void print(const char *line)
{
  strncat(text, line, sizeof text - strlen(text) - 1);
}

static bool yes(void)
{
  return true;
}

static void fresh(void)
{
  reset(memory_slots, SLOTS, reserved_slots);
  text[0] = 0;
}

static void edits(void)
{
  struct memblock_region *region;
  int regions = 0;

  fresh();
  CHECK(memblock_add(MIB(1), MIB(1)) == 0);
  CHECK(memblock_add_node(MIB(4), MIB(4), 1, MEMBLOCK_HOTPLUG) == 0);
  CHECK(memblock_add(MIB(2), MIB(2)) == 0);
  CHECK(memblock.memory.cnt == 2 && memblock.memory.total_size == MIB(7));
  CHECK(memory_slots[0].base == MIB(1) && memory_slots[0].size == MIB(3));
  CHECK(memory_slots[0].nid == MAX_NUMNODES && memory_slots[0].flags == MEMBLOCK_NONE);
  CHECK(memory_slots[1].nid == 1 && memblock_is_hotpluggable(&memory_slots[1]));
  CHECK(memblock_clear_hotplug(MIB(5), MIB(1)) == 0 && memblock.memory.cnt == 4);
  CHECK(memblock_mark_hotplug(MIB(5), MIB(1)) == 0 && memblock.memory.cnt == 2);
  CHECK(memblock_mark_nomap(MIB(7), MIB(1)) == 0 && memblock_is_nomap(&memory_slots[2]));
  CHECK(!memblock_is_map_memory(MIB(7)) && memblock_is_memory(MIB(7)));
  CHECK(memblock_clear_nomap(MIB(7), MIB(1)) == 0 && memblock_is_map_memory(MIB(7)));
  CHECK(memblock_mark_mirror(MIB(1), MIB(1)) == 0 && memblock.memory.cnt == 2);
  CHECK(memblock_set_node(MIB(1), MIB(1), &memblock.memory, 0) == 0 && memory_slots[0].nid == 0);
  CHECK(memblock_set_node(MIB(1), MIB(1), &memblock.memory, NUMA_NO_NODE) == 0 && memory_slots[0].nid == NUMA_NO_NODE);
  CHECK(memblock.memory.cnt == 3);
  CHECK(memblock_remove(MIB(1), MIB(3)) == 0 && memblock.memory.cnt == 1);

  CHECK(memblock_reserve(MIB(4), MIB(1)) == 0 && memblock_reserve(MIB(6), MIB(1)) == 0);
  CHECK(memblock_reserved_mark_noinit(MIB(6), KIB(512)) == 0 && memblock_is_reserved_noinit(&reserved_slots[1]));
  for_each_reserved_mem_region(region) regions++;
  CHECK(regions == 3 && memblock_reserved_size() == MIB(2));
  CHECK(memblock_phys_free(MIB(4), MIB(4)) == 0 && memblock.reserved.cnt == 0 && reserved_slots[0].size == 0);
  CHECK(memblock_add(MEMBLOCK_ALLOC_ANYWHERE - 4096, MIB(1)) == 0 && memory_slots[1].size == 4096);
  CHECK(memblock_add(0, 0) == 0 && memblock.memory.cnt == 2);
}

static void questions(void)
{
  unsigned long first, end;

  fresh();
  memblock_add_node(MIB(4), MIB(4) + KIB(2), 3, MEMBLOCK_NONE);
  memblock_reserve(MIB(5), MIB(1));
  CHECK(memblock_is_region_memory(MIB(4), MIB(4)) && !memblock_is_region_memory(MIB(4), MIB(5)));
  CHECK(memblock_is_reserved(MIB(5)) && !memblock_is_reserved(MIB(6)));
  CHECK(memblock_is_region_reserved(MIB(4), MIB(2)) && !memblock_is_region_reserved(MIB(6), MIB(1)));
  CHECK(memblock_is_region_reserved(MIB(5) + 1, 0) && !memblock_is_region_reserved(MIB(5), 0));
  CHECK(memblock_overlaps_region(&memblock.memory, MIB(8), MIB(1)) && !memblock_overlaps_region(NULL, MIB(8), MIB(1)));
  CHECK(memblock_addrs_overlap(1, 2, 2, 2) == 1 && memblock_addrs_overlap(1, 1, 2, 2) == 0);
  CHECK(memblock_phys_mem_size() == MIB(4) + KIB(2) && memblock_reserved_size() == MIB(1));
  CHECK(memblock_estimated_nr_free_pages() == 768);
  CHECK(memblock_start_of_DRAM() == MIB(4) && memblock_end_of_DRAM() == MIB(8) + KIB(2));
  CHECK(memblock_search_pfn_nid(1025, &first, &end) == 3 && first == 1024 && end == 2048);
  CHECK(memblock_search_pfn_nid(1, &first, &end) == NUMA_NO_NODE && first == 1024);
  CHECK(memblock_search_pfn_nid(1024, NULL, NULL) == 3);
  CHECK(memblock_validate_numa_coverage(0));
  memblock_add(MIB(16), MIB(1));
  CHECK(memblock_validate_numa_coverage(1 << 20) && !memblock_validate_numa_coverage((1 << 20) - 1));
  CHECK(strstr(text, "1048576 bytes of memory have no node") != NULL);
  CHECK(memblock_region_memory_base_pfn(&memory_slots[0]) == 1024);
  CHECK(memblock_region_memory_end_pfn(&memory_slots[0]) == 2048);
  CHECK(memblock_region_reserved_base_pfn(&memory_slots[0]) == 1024);
  CHECK(memblock_region_reserved_end_pfn(&memory_slots[0]) == 2049);
  text[0] = 0;
  memblock_dump_all();
  CHECK(strstr(text, "MEMBLOCK configuration:\n memory size = 0x0000000000500800 reserved size = 0x0000000000100000\n") == text);
  CHECK(strstr(text, " on node 3 flags: 0x0\n") != NULL);
}

static void walks(void)
{
  struct memblock_region *region;
  phys_addr_t start, end, sum = 0;
  unsigned long first, last;
  int i, nid, count = 0;
  u64 at;

  fresh();
  memblock_add_node(MIB(1), MIB(2), 0, MEMBLOCK_NONE);
  memblock_add_node(MIB(3), MIB(2), 1, MEMBLOCK_NONE);
  memblock_add_node(MIB(8), MIB(1), 1, MEMBLOCK_NOMAP);
  memblock_add_node(MIB(9), 100, 1, MEMBLOCK_NONE);
  memblock_reserve(MIB(2), MIB(2));
  for_each_free_mem_range(at, NUMA_NO_NODE, MEMBLOCK_NONE, &start, &end, &nid) {
    static const phys_addr_t starts[] = {MIB(1), MIB(4), MIB(9)}, ends[] = {MIB(2), MIB(5), MIB(9) + 100};
    CHECK(start == starts[count] && end == ends[count] && nid == (count > 0));
    count++;
  }
  CHECK(count == 3);
  for_each_free_mem_range_reverse(at, 1, MEMBLOCK_NOMAP, &start, &end, NULL) {
    static const phys_addr_t starts[] = {MIB(4), MIB(8), MIB(9)};
    count--;
    CHECK(start == starts[count]);
  }
  CHECK(count == 0);
  for_each_mem_range(at, &start, &end) sum += end - start;
  CHECK(sum == MIB(4) + 100);
  for_each_mem_range_rev(at, &start, &end) sum -= end - start;
  CHECK(sum == 0);
  for_each_reserved_mem_range(at, &start, &end) sum += end - start;
  CHECK(sum == MIB(2));
  for_each_mem_region(region) count += memblock_get_region_node(region);
  CHECK(count == 3);
  for_each_mem_pfn_range(i, MAX_NUMNODES, &first, &last, &nid) count++;
  CHECK(count == 6 && i == -1);
  for_each_mem_pfn_range(i, 0, &first, &last, NULL) CHECK(first == 256 && last == 768 && i == 0);
  at = ~(u64)0 - 1;
  __next_mem_range(&at, NUMA_NO_NODE, MEMBLOCK_NONE, &memblock.memory, &memblock.reserved, NULL, NULL, NULL);
  CHECK(at == ~(u64)0);
}

static void allocations(void)
{
  unsigned char *bytes, *again;
  phys_addr_t place;

  fresh();
  frameyard_memblock.va_offset = (long long)((uintptr_t)arena - ARENA);
  memset(arena, 1, sizeof arena);
  memblock_add_node(ARENA, KIB(512), 0, MEMBLOCK_NONE);
  memblock_add_node(ARENA + KIB(512), KIB(512), 1, MEMBLOCK_NONE);
  bytes = memblock_alloc(KIB(8), 4096);
  CHECK(bytes == arena + sizeof arena - 8192 && bytes[0] == 0 && bytes[8191] == 0 && bytes[-1] == 1);
  memset(bytes, 7, 8192);
  memblock_free(bytes, 8192);
  memblock_free(NULL, 8192);
  CHECK(memblock.reserved.cnt == 0);
  again = memblock_alloc_raw(KIB(8), 4096);
  CHECK(again == bytes && again[0] == 7);
  CHECK(memblock_alloc_node(64, 64, 0) == arena + KIB(512) - 64);
  CHECK(memblock_alloc_from(64, 0, ARENA + KIB(512)) == bytes - 64);
  CHECK(memblock_alloc_try_nid_raw(64, 64, MIB(64), 0, 1) == bytes - 128);
  CHECK(memblock_alloc_exact_nid_raw(KIB(600), 64, 0, 0, 1) == NULL);
  CHECK(memblock_alloc_exact_nid_raw(64, 64, 0, 0, 1) == bytes - 192);
  CHECK(memblock_alloc_try_nid(64, 64, 0, ARENA + 4096, 1) == arena + 4032);
  CHECK(memblock_alloc_low(64, 64) == bytes - 256);
  memblock_set_bottom_up(true);
  CHECK(memblock_bottom_up() && memblock_alloc(64, 64) == arena);
  CHECK(memblock_phys_alloc(64, 64) == ARENA + 64);
  CHECK(memblock_phys_alloc_range(64, 64, ARENA + KIB(8), ARENA + KIB(16)) == ARENA + KIB(8));
  CHECK(memblock_phys_alloc_try_nid(64, 64, 1) == ARENA + KIB(512));
  place = memblock_find_in_range(ARENA + KIB(32), MEMBLOCK_ALLOC_ACCESSIBLE, 4096, 4096);
  CHECK(place == ARENA + KIB(32) && !memblock_is_reserved(place));
  CHECK(memblock_alloc_range_nid(64, 64, 0, MEMBLOCK_ALLOC_ANYWHERE, 7, true) == 0);
  CHECK(memblock_alloc_range_nid(64, 64, 0, MEMBLOCK_ALLOC_ANYWHERE, 7, false) == ARENA + 128);
  memblock_set_current_limit(ARENA + KIB(4));
  CHECK(memblock_get_current_limit() == memblock.current_limit);
  CHECK(memblock_alloc(KIB(8), 64) == NULL);
  memblock_set_current_limit(MEMBLOCK_ALLOC_ANYWHERE);

  memblock_mark_hotplug(ARENA, KIB(512));
  frameyard_memblock.movable_node_is_enabled = yes;
  CHECK(memblock_phys_alloc(64, 64) == ARENA + KIB(512) + 64);
  frameyard_memblock.movable_node_is_enabled = NULL;
  frameyard_memblock.mirrored_kernelcore = true;
  memblock_mark_mirror(ARENA + KIB(768), KIB(4));
  CHECK(memblock_phys_alloc(64, 64) == ARENA + KIB(768) && memblock_is_mirror(&memory_slots[2]));
  frameyard_memblock.mirrored_kernelcore = false;
}

static void limits(void)
{
  fresh();
  memblock_add(MIB(1) + 5, MIB(4));
  memblock_reserve(MIB(4), MIB(8));
  memblock_trim_memory(4096);
  CHECK(memory_slots[0].base == MIB(1) + 4096 && memblock.memory.total_size == MIB(4) - 4096);
  memblock_cap_memory_range(MIB(2), MIB(3));
  CHECK(memblock_start_of_DRAM() == MIB(2) && memblock_end_of_DRAM() == MIB(5) && memblock_reserved_size() == MIB(1));
  memblock_mem_limit_remove_map(MIB(2));
  CHECK(memblock_end_of_DRAM() == MIB(4) && memblock.reserved.cnt == 0);
  memblock_enforce_memory_limit(MIB(1));
  CHECK(memblock_end_of_DRAM() == MIB(3));
  memblock_enforce_memory_limit(0);
  CHECK(memblock_phys_mem_size() == MIB(1));
  memblock_discard();
}

/* A list that is full doubles into memory of the map; in the program's own array as in the built-in one. */
static void growth(void)
{
  const unsigned long array = (unsigned long)(2 * SLOTS * sizeof(struct memblock_region) + 4095) / 4096 * 4096;
  unsigned long i;

  fresh();
  memblock_add(ARENA, sizeof arena);
  for (i = 0; i < SLOTS; i++)
    CHECK(memblock_reserve(ARENA + KIB(2) * i, KIB(1)) == 0);
  CHECK(memblock_reserve(ARENA + KIB(2) * i, KIB(1)) == -12);
  CHECK(strcmp(text, "memblock_reserve: the reserved list is full with 128 regions: allow it to grow first\n") == 0);
  CHECK(memblock.reserved.cnt == SLOTS && memblock.reserved.regions == reserved_slots);
  memblock_allow_resize();
  CHECK(memblock_reserve(ARENA + KIB(2) * i, KIB(1)) == 0);
  CHECK(memblock.reserved.cnt == SLOTS + 2 && memblock.reserved.max == 2 * SLOTS);
  CHECK(memblock.reserved.total_size == KIB(SLOTS + 1) + array);
  CHECK(memblock.reserved.regions == (void *)(arena + sizeof arena - array));
  CHECK(memblock_is_reserved(ARENA + sizeof arena - array));
  CHECK(memblock_phys_free(ARENA + sizeof arena - 1, 1) == -16);
  for (i = SLOTS + 1; i < 3 * SLOTS; i++)
    CHECK(memblock_reserve(ARENA + KIB(2) * i, KIB(1)) == 0);
  CHECK(memblock.reserved.max == 4 * SLOTS && memblock.reserved.cnt == 3 * SLOTS + 1);
  CHECK(!memblock_is_reserved(ARENA + sizeof arena - 1));
}

int main(void)
{
  CHECK(memblock.memory.cnt == 0 && memblock.memory.max == 128 && strcmp(memblock.memory.name, "memory") == 0);
  CHECK(memblock.reserved.cnt == 0 && memblock.reserved.max == 128 && strcmp(memblock.reserved.name, "reserved") == 0);
  CHECK(memblock.current_limit == MEMBLOCK_ALLOC_ANYWHERE && !memblock.bottom_up && memblock_phys_mem_size() == 0);
  frameyard_memblock.print = print;
  edits();
  questions();
  walks();
  allocations();
  limits();
  growth();
  printf("%d checks\n", checks);
  return 0;
}
