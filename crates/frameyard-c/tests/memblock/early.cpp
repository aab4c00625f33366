// The early allocator from C++.
#include <memblock.h>

#include <cstdio>
#include <vector>

namespace {

alignas(4096) unsigned char arena[1 << 18];

struct Range {
  phys_addr_t start, end;
};

std::vector<Range> free_ranges() {
  std::vector<Range> ranges;
  Range range;
  u64 at;
  for_each_free_mem_range(at, NUMA_NO_NODE, MEMBLOCK_NONE, &range.start, &range.end, NULL) ranges.push_back(range);
  return ranges;
}

}  // namespace

int main() {
  const auto base = reinterpret_cast<phys_addr_t>(arena);
  phys_addr_t start, end, memory = 0;
  u64 at;
  if (memblock_add_node(base, sizeof arena, 0, MEMBLOCK_NONE) != 0) return 1;
  auto *table = static_cast<unsigned char *>(memblock_alloc(4096, 4096));
  if (table != arena + sizeof arena - 4096 || table[0] != 0) return 2;
  if (memblock_reserve(base + 4096, 4096) != 0) return 3;
  const auto ranges = free_ranges();
  if (ranges.size() != 2 || ranges[0].end != base + 4096 || ranges[1].end != base + sizeof arena - 4096) return 4;
  for_each_mem_range(at, &start, &end) memory += end - start;
  if (memory != sizeof arena || memory != memblock.memory.total_size) return 5;
  memblock_free(table, 4096);
  if (memblock_reserved_size() != 4096) return 6;
  std::printf("%zu free ranges\n", ranges.size());
  return 0;
}
