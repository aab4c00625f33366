/* The library beside the kernel's own memblock: random calls on both, and the whole state compared after each.
 *
 * cargo xtask memblock-tests compiles mm/memblock.c of Debian's kernel source package and gives its symbols the prefix k_. Usage:
 * differential FIRST_SEED SEEDS. Each seed runs in a process of its own, because the kernel's file has state that cannot be reset. */
#define _POSIX_C_SOURCE 200809L
#include <memblock.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's memblock. The functions that this program calls on both sides. */
extern struct memblock k_memblock;
extern bool k_mirrored_kernelcore;
#define RANGE_FUNCTIONS(f) \
  f(memblock_add) f(memblock_remove) f(memblock_reserve) f(memblock_phys_free) f(memblock_mark_hotplug) \
  f(memblock_clear_hotplug) f(memblock_mark_mirror) f(memblock_mark_nomap) f(memblock_clear_nomap)
#define DECLARE(name) int k_##name(phys_addr_t base, phys_addr_t size);
RANGE_FUNCTIONS(DECLARE)
int k_memblock_add_node(phys_addr_t base, phys_addr_t size, int nid, enum memblock_flags flags);
int k_memblock_set_node(phys_addr_t base, phys_addr_t size, struct memblock_type *type, int nid);
void k_memblock_allow_resize(void);
void k_memblock_trim_memory(phys_addr_t align);
void k_memblock_cap_memory_range(phys_addr_t base, phys_addr_t size);
void k_memblock_enforce_memory_limit(phys_addr_t limit);
void k_memblock_mem_limit_remove_map(phys_addr_t limit);
phys_addr_t k_memblock_alloc_range_nid(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int, bool);
phys_addr_t k_memblock_phys_alloc_try_nid(phys_addr_t, phys_addr_t, int);
void *k_memblock_alloc_try_nid(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int);
void *k_memblock_alloc_try_nid_raw(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int);
void *k_memblock_alloc_exact_nid_raw(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int);
bool k_memblock_is_memory(phys_addr_t addr);
bool k_memblock_is_map_memory(phys_addr_t addr);
bool k_memblock_is_reserved(phys_addr_t addr);
bool k_memblock_is_region_memory(phys_addr_t base, phys_addr_t size);
bool k_memblock_is_region_reserved(phys_addr_t base, phys_addr_t size);
bool k_memblock_overlaps_region(struct memblock_type *type, phys_addr_t base, phys_addr_t size);
int k_memblock_search_pfn_nid(unsigned long pfn, unsigned long *start, unsigned long *end);
phys_addr_t k_memblock_start_of_DRAM(void);
phys_addr_t k_memblock_end_of_DRAM(void);
typedef void next_range(u64 *, int, enum memblock_flags, struct memblock_type *, struct memblock_type *, phys_addr_t *,
                        phys_addr_t *, int *);
next_range k___next_mem_range, k___next_mem_range_rev;
void k___next_mem_pfn_range(int *, int, unsigned long *, unsigned long *, int *);

/* What the kernel's file calls. There is no slab and no page allocator. */
struct pglist_data;
bool k_movable_node_enabled;
bool k_slab_is_available(void) { return false; }
void *k_kmalloc(size_t size, unsigned int flags) { (void)size, (void)flags; abort(); }
void k_kfree(void *pointer) { (void)pointer; abort(); }
struct pglist_data *k_first_online_pgdat(void) { return NULL; }
struct pglist_data *k_next_online_pgdat(struct pglist_data *node) { (void)node; return NULL; }
/* A list that cannot grow for the array of the other one stops the kernel, and the library returns an error. */
enum { AGREES, AGREES_AND_GREW = 2, KERNEL_STOPPED = 3 };
static bool failed, no_slot;
void k___assert_fail(const char *condition, const char *file, unsigned int line, const char *function)
{
  (void)condition, (void)file, (void)line, (void)function;
  _exit(failed ? KERNEL_STOPPED : 1);
}
/* Linux from 6.10 on calls panic(), which prints and ends the program. */
int k_vfprintf(FILE *stream, const char *format, va_list arguments)
{
  (void)stream, (void)format, (void)arguments;
  return 0;
}
void k_exit(int status)
{
  (void)status;
  _exit(failed ? KERNEL_STOPPED : 1);
}
void k_reserve_bootmem_region(phys_addr_t start, phys_addr_t end) { (void)start, (void)end; }

#define CELL 1024
#define CELLS 1024

/* The kernel's physical memory, and that of the library. Both have the physical addresses of the first. */
static unsigned char k_arena[CELLS * CELL] __attribute__((aligned(1 << 16)));
static unsigned char arena[CELLS * CELL] __attribute__((aligned(1 << 16)));

static u64 state;
static char call[256];
static FILE *report;

static u64 below(u64 limit)
{
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % limit;
}

static void note_failure(const char *line)
{
  failed = true;
  no_slot = no_slot || strstr(line, "cannot grow") != NULL || strstr(line, "is full") != NULL;
}
static bool movable(void) { return k_movable_node_enabled; }

static void expect(bool equal, const char *what)
{
  unsigned long i;

  if (equal)
    return;
  fprintf(report, "after %s: %s differs\n", call, what);
  fprintf(report, "memory: library %lu/%lu, kernel %lu/%lu; reserved: library %lu/%lu, kernel %lu/%lu\n", memblock.memory.cnt,
          memblock.memory.max, k_memblock.memory.cnt, k_memblock.memory.max, memblock.reserved.cnt, memblock.reserved.max,
          k_memblock.reserved.cnt, k_memblock.reserved.max);
  for (i = 0; i < memblock.memory.cnt && i < k_memblock.memory.cnt; i++) {
    struct memblock_region *a = &memblock.memory.regions[i], *b = &k_memblock.memory.regions[i];
    if (memcmp(a, b, sizeof *a) != 0) {
      fprintf(report, "memory[%lu]: library %#llx+%#llx node %d, kernel %#llx+%#llx node %d\n", i, (unsigned long long)a->base,
              (unsigned long long)a->size, a->nid, (unsigned long long)b->base, (unsigned long long)b->size, b->nid);
      break;
    }
  }
  for (i = 0; i < memblock.reserved.cnt && i < k_memblock.reserved.cnt; i++) {
    struct memblock_region *a = &memblock.reserved.regions[i], *b = &k_memblock.reserved.regions[i];
    if (memcmp(a, b, sizeof *a) != 0) {
      fprintf(report, "reserved[%lu]: library %#llx+%#llx node %d, kernel %#llx+%#llx node %d\n", i, (unsigned long long)a->base,
              (unsigned long long)a->size, a->nid, (unsigned long long)b->base, (unsigned long long)b->size, b->nid);
      break;
    }
  }
  exit(1);
}

static bool in_arena(struct memblock_type *type, unsigned char *start)
{
  return (unsigned char *)type->regions >= start && (unsigned char *)type->regions < start + CELLS * CELL;
}

static void compare_list(struct memblock_type *ours, struct memblock_type *kernels, const char *name)
{
  expect(ours->cnt == kernels->cnt && ours->max == kernels->max, name);
  expect(memcmp(ours->regions, kernels->regions, ours->cnt * sizeof *ours->regions) == 0, name);
  expect(ours->total_size == kernels->total_size, "the total size");
  expect(in_arena(ours, arena) == in_arena(kernels, k_arena), "who has grown");
  if (in_arena(ours, arena))
    expect((unsigned char *)ours->regions - arena == (unsigned char *)kernels->regions - k_arena, "the place of an array");
}

static void compare_walks(void)
{
  static const int nodes[] = {NUMA_NO_NODE, 1, MAX_NUMNODES};
  static const int flags[] = {0, MEMBLOCK_MIRROR, MEMBLOCK_HOTPLUG | MEMBLOCK_NOMAP, MEMBLOCK_DRIVER_MANAGED};
  const int nid = nodes[below(3)];
  const enum memblock_flags flag = (enum memblock_flags)flags[below(4)];
  const int lists = (int)below(3);
  struct memblock_type *a = lists == 2 ? &memblock.reserved : &memblock.memory, *b = lists == 0 ? &memblock.reserved : NULL;
  struct memblock_type *k_a = lists == 2 ? &k_memblock.reserved : &k_memblock.memory,
                       *k_b = lists == 0 ? &k_memblock.reserved : NULL;
  phys_addr_t range[2] = {0, 0}, k_range[2] = {0, 0};
  unsigned long pages[2] = {0, 0}, k_pages[2] = {0, 0};
  int node = 0, k_node = 0, direction, at, k_at;
  u64 i, k_i;

  for (direction = 0; direction < 2; direction++) {
    next_range *next = direction ? __next_mem_range_rev : __next_mem_range;
    next_range *k_next = direction ? k___next_mem_range_rev : k___next_mem_range;
    i = k_i = direction ? ~(u64)0 : 0;
    /* The kernel visits the region of an empty list, and this library does not. */
    if (a->cnt == 1 && a->regions[0].size == 0)
      break;
    do {
      next(&i, nid, flag, a, b, &range[0], &range[1], &node);
      k_next(&k_i, nid, flag, k_a, k_b, &k_range[0], &k_range[1], &k_node);
      /* The kernel counts the region of an empty list of reservations. */
      if (b != NULL && b->cnt == 1 && b->regions[0].size == 0)
        expect((i == ~(u64)0) == (k_i == ~(u64)0), "the end of a walk");
      else
        expect(i == k_i, "the position of a walk");
      expect(range[0] == k_range[0] && range[1] == k_range[1] && node == k_node, "a walk");
    } while (i != ~(u64)0);
  }
  at = k_at = -1;
  do {
    /* Linux before 6.11 takes NUMA_NO_NODE for a node. */
    const int of_node = nid == NUMA_NO_NODE ? MAX_NUMNODES : nid;
    __next_mem_pfn_range(&at, of_node, &pages[0], &pages[1], &node);
    k___next_mem_pfn_range(&k_at, of_node, &k_pages[0], &k_pages[1], &k_node);
    expect(at == k_at && pages[0] == k_pages[0] && pages[1] == k_pages[1] && node == k_node, "a walk over pages");
  } while (at != -1);
}

static void compare_answers(phys_addr_t base)
{
  const phys_addr_t at = base + below(CELLS) * CELL + below(2) * 100, size = below(20) * CELL;
  unsigned long pages[2] = {0, 0}, k_pages[2] = {0, 0};

  expect(memblock_is_memory(at) == k_memblock_is_memory(at), "memblock_is_memory");
  expect(memblock_is_map_memory(at) == k_memblock_is_map_memory(at), "memblock_is_map_memory");
  expect(memblock_is_reserved(at) == k_memblock_is_reserved(at), "memblock_is_reserved");
  expect(memblock_is_region_memory(at, size) == k_memblock_is_region_memory(at, size), "memblock_is_region_memory");
  expect(memblock_is_region_reserved(at, size) == k_memblock_is_region_reserved(at, size), "memblock_is_region_reserved");
  expect(memblock_overlaps_region(&memblock.memory, at, size) == k_memblock_overlaps_region(&k_memblock.memory, at, size),
         "memblock_overlaps_region");
  expect(memblock_search_pfn_nid(at >> 12, &pages[0], &pages[1]) == k_memblock_search_pfn_nid(at >> 12, &k_pages[0], &k_pages[1]),
         "memblock_search_pfn_nid");
  expect(pages[0] == k_pages[0] && pages[1] == k_pages[1], "memblock_search_pfn_nid");
  expect(memblock_start_of_DRAM() == k_memblock_start_of_DRAM(), "memblock_start_of_DRAM");
  expect(memblock_end_of_DRAM() == k_memblock_end_of_DRAM(), "memblock_end_of_DRAM");
}

/* Whether a range holds the array of a list: the library refuses to free it, and the kernel does not. */
static bool holds_array(phys_addr_t start, phys_addr_t end)
{
  struct memblock_type *lists[2] = {&k_memblock.memory, &k_memblock.reserved};
  int i;

  for (i = 0; i < 2; i++) {
    const phys_addr_t first = (phys_addr_t)(uintptr_t)lists[i]->regions;
    const phys_addr_t last = first + (lists[i]->max * sizeof(struct memblock_region) + 4095) / 4096 * 4096;
    if (in_arena(lists[i], k_arena) && first < end && start < last)
      return true;
  }
  return false;
}

/* The library first: where the kernel stops, it must have failed. */
#define BOTH(name, ...)                                                       \
  do {                                                                        \
    phys_addr_t result;                                                       \
    snprintf(call, sizeof call, "%s", #name);                                 \
    result = (phys_addr_t)name(__VA_ARGS__);                                  \
    if (no_slot && strstr(#name, "alloc") != NULL)                            \
      return;                                                                 \
    expect(result == (phys_addr_t)k_##name(__VA_ARGS__), "the result");       \
  } while (0)

static void allocate(phys_addr_t base)
{
  const phys_addr_t size = 1 + below(30) * CELL, align = (phys_addr_t)1 << below(15);
  const phys_addr_t min = below(3) ? 0 : base + below(CELLS) * CELL;
  const phys_addr_t maxima[] = {MEMBLOCK_ALLOC_ACCESSIBLE, MEMBLOCK_ALLOC_ANYWHERE, base + below(CELLS) * CELL};
  const phys_addr_t max = maxima[below(3)];
  const int nodes[] = {NUMA_NO_NODE, 0, 1, 2}, nid = nodes[below(4)];
  const bool exact = below(2);
  void *(*functions[])(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int) = {
      memblock_alloc_try_nid, memblock_alloc_try_nid_raw, memblock_alloc_exact_nid_raw};
  void *(*k_functions[])(phys_addr_t, phys_addr_t, phys_addr_t, phys_addr_t, int) = {
      k_memblock_alloc_try_nid, k_memblock_alloc_try_nid_raw, k_memblock_alloc_exact_nid_raw};
  unsigned char *bytes, *k_bytes;
  int which;

  switch (below(3)) {
  case 0:
    BOTH(memblock_alloc_range_nid, size, align, min, max, nid, exact);
    break;
  case 1:
    BOTH(memblock_phys_alloc_try_nid, size, align, nid);
    break;
  default:
    which = (int)below(3);
    snprintf(call, sizeof call, "memblock_alloc_*, function %d", which);
    bytes = functions[which](size, align, min, max, nid);
    if (no_slot)
      return;
    k_bytes = k_functions[which](size, align, min, max, nid);
    expect((bytes == NULL) == (k_bytes == NULL) && (bytes == NULL || bytes - arena == k_bytes - k_arena), "the pointer");
    expect(bytes == NULL || memcmp(bytes, k_bytes, size) == 0, "a byte");
  }
}

#ifdef MERGES_ALL
/* Linux before 6.4 merges the splits that a cap leaves with each change anywhere. The library follows 6.12, which leaves them. Here the
 * program, which may write the state, merges them. */
static void merge(struct memblock_type *list)
{
  unsigned long from, to = 0;

  for (from = 1; from < list->cnt; from++) {
    struct memblock_region *last = &list->regions[to], *next = &list->regions[from];

    if (last->base + last->size == next->base && last->nid == next->nid && last->flags == next->flags)
      last->size += next->size;
    else
      list->regions[++to] = *next;
  }
  if (list->cnt > 0)
    list->cnt = to + 1;
}
#endif

static void limit(phys_addr_t base)
{
  const phys_addr_t start = base + below(CELLS) * CELL / 4, size = (CELLS / 2 + below(CELLS)) * CELL, most = below(2 * CELLS) * CELL;

  if (holds_array(0, MEMBLOCK_ALLOC_ANYWHERE))
    return;
  /* If the reserved list is full, the kernel caps the memory list alone, and the library refuses. */
  if (memblock.memory.cnt + 2 > memblock.memory.max || memblock.reserved.cnt + 4 > memblock.reserved.max)
    return;
  switch (below(3)) {
  case 0:
    snprintf(call, sizeof call, "memblock_cap_memory_range");
    memblock_cap_memory_range(start, size);
    k_memblock_cap_memory_range(start, size);
    break;
  case 1:
    snprintf(call, sizeof call, "memblock_enforce_memory_limit");
    memblock_enforce_memory_limit(most);
    k_memblock_enforce_memory_limit(most);
    break;
  default:
    snprintf(call, sizeof call, "memblock_mem_limit_remove_map");
    memblock_mem_limit_remove_map(most);
    k_memblock_mem_limit_remove_map(most);
  }
#ifdef MERGES_ALL
  merge(&memblock.memory);
  k_memblock_clear_hotplug(base, 0);
#endif
}

static void change_settings(phys_addr_t base)
{
  switch (below(5)) {
  case 0:
    memblock.bottom_up = k_memblock.bottom_up = below(2);
    break;
  case 1:
    memblock.current_limit = k_memblock.current_limit = below(3) ? MEMBLOCK_ALLOC_ANYWHERE : base + below(CELLS) * CELL;
    break;
  case 2:
    k_movable_node_enabled = below(2);
    break;
  case 3:
    k_mirrored_kernelcore = frameyard_memblock.mirrored_kernelcore = below(3) == 0;
    break;
  default:
    memblock_allow_resize();
    k_memblock_allow_resize();
  }
}

static void step(phys_addr_t base)
{
  const phys_addr_t start = base + below(CELLS) * CELL, most = base + CELLS * CELL - start, align = (phys_addr_t)1 << (10 + below(4));
  phys_addr_t size = below(40) * CELL, small = below(5) * CELL;
  static const int flags[] = {0, 0, 0, MEMBLOCK_HOTPLUG, MEMBLOCK_NOMAP, MEMBLOCK_DRIVER_MANAGED};
  static const int nodes[] = {0, 1, 2, NUMA_NO_NODE, MAX_NUMNODES};
  const enum memblock_flags flag = (enum memblock_flags)flags[below(6)];
  const int nid = nodes[below(5)];

  if (size > most)
    size = most;
  if (small > most)
    small = most;
  snprintf(call, sizeof call, "settings");
  switch (below(24)) {
  case 0: BOTH(memblock_add, start, size); break;
  case 1: case 2: BOTH(memblock_add_node, start, size, nid, flag); break;
  case 3: BOTH(memblock_add_node, start, small, nid, flag); break;
  case 4: BOTH(memblock_remove, start, small); break;
  case 5: case 6: case 7: case 8: BOTH(memblock_reserve, start, small); break;
  case 9: case 10:
    if (!holds_array(start, start + small))
      BOTH(memblock_phys_free, start, small);
    break;
  case 11: BOTH(memblock_mark_hotplug, start, small); break;
  case 12: BOTH(memblock_clear_hotplug, start, size); break;
  case 13: BOTH(memblock_mark_nomap, start, small); break;
  case 14: BOTH(memblock_clear_nomap, start, size); break;
  case 15: BOTH(memblock_mark_mirror, start, size); break;
  case 16:
    snprintf(call, sizeof call, "memblock_set_node");
    if (below(2))
      expect(memblock_set_node(start, size, &memblock.memory, nid) == k_memblock_set_node(start, size, &k_memblock.memory, nid), "it");
    else
      expect(memblock_set_node(start, size, &memblock.reserved, nid) == k_memblock_set_node(start, size, &k_memblock.reserved, nid),
             "it");
    break;
  case 17:
    if (below(8) == 0)
      limit(base);
    break;
  case 18:
    if (below(8) == 0) {
      snprintf(call, sizeof call, "memblock_trim_memory");
      memblock_trim_memory(align);
      k_memblock_trim_memory(align);
      /* The kernel's total still counts what was cut off. */
      k_memblock.memory.total_size = memblock.memory.total_size;
    }
    break;
  case 19: change_settings(base); break;
  default: allocate(base);
  }
}

/* One seed: about as many calls as fill lists of 128 regions more than once. */
static void run(u64 seed)
{
  const phys_addr_t base = (phys_addr_t)(uintptr_t)k_arena;
  unsigned long calls = 3000, i;

  state = seed * 2654435761u + 1;
  frameyard_memblock.va_offset = (long long)(arena - k_arena);
  frameyard_memblock.movable_node_is_enabled = movable;
  frameyard_memblock.print = note_failure;
  frameyard_memblock.empty_list_has_region = k_memblock.memory.cnt == 1;
  memblock.memory.cnt = k_memblock.memory.cnt;
  memblock.reserved.cnt = k_memblock.reserved.cnt;
  for (i = 0; i < calls; i++) {
    failed = no_slot = false;
    step(base);
    /* The kernel looks for other memory if a reservation fails. Other memory may fit where the first did not. */
    if (no_slot && strstr(call, "alloc") != NULL)
      return;
    compare_list(&memblock.memory, &k_memblock.memory, "the memory list");
    compare_list(&memblock.reserved, &k_memblock.reserved, "the reserved list");
    compare_walks();
    compare_answers(base);
  }
}

int main(int argc, char **argv)
{
  const u64 first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  u64 seed, counts[4] = {0, 0, 0, 0};

  /* The kernel's file writes its log to both. */
  report = fdopen(dup(2), "w");
  if (report == NULL || freopen("/dev/null", "w", stdout) == NULL || freopen("/dev/null", "w", stderr) == NULL)
    return 1;
  setvbuf(report, NULL, _IONBF, 0);
  for (seed = first; seed < first + seeds; seed++) {
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
      run(seed);
      exit(memblock.reserved.max > 128 ? AGREES_AND_GREW : AGREES);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) > KERNEL_STOPPED ||
        WEXITSTATUS(status) == 1) {
      fprintf(report, "differential: seed %llu failed, status %#x\n", (unsigned long long)seed, status);
      return 1;
    }
    counts[WEXITSTATUS(status)]++;
  }
  fprintf(report, "%llu seeds agree; in %llu a list grew, in %llu the kernel stopped where the library returned an error\n",
          (unsigned long long)seeds, (unsigned long long)counts[AGREES_AND_GREW], (unsigned long long)counts[KERNEL_STOPPED]);
  return 0;
}
