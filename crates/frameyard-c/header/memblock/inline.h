
// Allocates zeroed memory below the current limit, on any node. Returns null if none is left.
static inline void *memblock_alloc(phys_addr_t size, phys_addr_t align)
{
  return memblock_alloc_try_nid(size, align, MEMBLOCK_LOW_LIMIT, MEMBLOCK_ALLOC_ACCESSIBLE, NUMA_NO_NODE);
}

// As memblock_alloc; leaves the bytes as they are.
static inline void *memblock_alloc_raw(phys_addr_t size, phys_addr_t align)
{
  return memblock_alloc_try_nid_raw(size, align, MEMBLOCK_LOW_LIMIT, MEMBLOCK_ALLOC_ACCESSIBLE, NUMA_NO_NODE);
}

// As memblock_alloc, at or above `min_addr` if it can.
static inline void *memblock_alloc_from(phys_addr_t size, phys_addr_t align, phys_addr_t min_addr)
{
  return memblock_alloc_try_nid(size, align, min_addr, MEMBLOCK_ALLOC_ACCESSIBLE, NUMA_NO_NODE);
}

// As memblock_alloc, below ARCH_LOW_ADDRESS_LIMIT.
static inline void *memblock_alloc_low(phys_addr_t size, phys_addr_t align)
{
  return memblock_alloc_try_nid(size, align, MEMBLOCK_LOW_LIMIT, ARCH_LOW_ADDRESS_LIMIT, NUMA_NO_NODE);
}

// As memblock_alloc, from the node if it can.
static inline void *memblock_alloc_node(phys_addr_t size, phys_addr_t align, int nid)
{
  return memblock_alloc_try_nid(size, align, MEMBLOCK_LOW_LIMIT, MEMBLOCK_ALLOC_ACCESSIBLE, nid);
}

// Allocates physical memory below the current limit, on any node. Returns 0 if none is left.
static inline phys_addr_t memblock_phys_alloc(phys_addr_t size, phys_addr_t align)
{
  return memblock_phys_alloc_range(size, align, MEMBLOCK_LOW_LIMIT, MEMBLOCK_ALLOC_ACCESSIBLE);
}

// Sets whether allocations start at the lowest address instead of the highest.
static inline void memblock_set_bottom_up(bool enable)
{
  memblock.bottom_up = enable;
}

// Whether allocations start at the lowest address instead of the highest.
static inline bool memblock_bottom_up(void)
{
  return memblock.bottom_up;
}

// Frees the arrays of the lists in kernels that need them no longer. Does nothing here.
static inline void memblock_discard(void)
{
}

// Whether a region has MEMBLOCK_HOTPLUG.
static inline bool memblock_is_hotpluggable(struct memblock_region *m)
{
  return (m->flags & MEMBLOCK_HOTPLUG) != 0;
}

// Whether a region has MEMBLOCK_MIRROR.
static inline bool memblock_is_mirror(struct memblock_region *m)
{
  return (m->flags & MEMBLOCK_MIRROR) != 0;
}

// Whether a region has MEMBLOCK_NOMAP.
static inline bool memblock_is_nomap(struct memblock_region *m)
{
  return (m->flags & MEMBLOCK_NOMAP) != 0;
}

// Whether a region has MEMBLOCK_DRIVER_MANAGED.
static inline bool memblock_is_driver_managed(struct memblock_region *m)
{
  return (m->flags & MEMBLOCK_DRIVER_MANAGED) != 0;
}

// Whether a region has MEMBLOCK_RSRV_NOINIT.
static inline bool memblock_is_reserved_noinit(struct memblock_region *m)
{
  return (m->flags & MEMBLOCK_RSRV_NOINIT) != 0;
}

// The node of a region.
static inline int memblock_get_region_node(const struct memblock_region *r)
{
  return r->nid;
}

// Sets the node of a region.
static inline void memblock_set_region_node(struct memblock_region *r, int nid)
{
  r->nid = nid;
}

// The first whole page of a memory region.
static inline unsigned long memblock_region_memory_base_pfn(const struct memblock_region *reg)
{
  return (unsigned long)((reg->base >> PAGE_SHIFT) + ((reg->base & (((phys_addr_t)1 << PAGE_SHIFT) - 1)) != 0));
}

// The page behind the last whole one of a memory region.
static inline unsigned long memblock_region_memory_end_pfn(const struct memblock_region *reg)
{
  return (unsigned long)((reg->base + reg->size) >> PAGE_SHIFT);
}

// The page of the first byte of a reservation.
static inline unsigned long memblock_region_reserved_base_pfn(const struct memblock_region *reg)
{
  return (unsigned long)(reg->base >> PAGE_SHIFT);
}

// The page behind that of the last byte of a reservation.
static inline unsigned long memblock_region_reserved_end_pfn(const struct memblock_region *reg)
{
  const phys_addr_t end = reg->base + reg->size;
  return (unsigned long)((end >> PAGE_SHIFT) + ((end & (((phys_addr_t)1 << PAGE_SHIFT) - 1)) != 0));
}

// The flags of several values; C++ does not convert numbers to enumerators.
#define FRAMEYARD_MEMBLOCK_FLAGS(flags) ((enum memblock_flags)(flags))

// Walks the parts of the regions of `type_a` that are not in `type_b`, lowest first. `i` is a u64.
#define __for_each_mem_range(i, type_a, type_b, nid, flags, p_start, p_end, p_nid)                                \
  for (i = 0, __next_mem_range(&i, nid, FRAMEYARD_MEMBLOCK_FLAGS(flags), type_a, type_b, p_start, p_end, p_nid); \
       i != ~(u64)0;                                                                                             \
       __next_mem_range(&i, nid, FRAMEYARD_MEMBLOCK_FLAGS(flags), type_a, type_b, p_start, p_end, p_nid))

// As __for_each_mem_range, highest first.
#define __for_each_mem_range_rev(i, type_a, type_b, nid, flags, p_start, p_end, p_nid)                              \
  for (i = ~(u64)0,                                                                                                 \
      __next_mem_range_rev(&i, nid, FRAMEYARD_MEMBLOCK_FLAGS(flags), type_a, type_b, p_start, p_end, p_nid);        \
       i != ~(u64)0;                                                                                                \
       __next_mem_range_rev(&i, nid, FRAMEYARD_MEMBLOCK_FLAGS(flags), type_a, type_b, p_start, p_end, p_nid))

// Walks memory that may be mapped, lowest first.
#define for_each_mem_range(i, p_start, p_end)                                                                   \
  __for_each_mem_range(i, &memblock.memory, NULL, NUMA_NO_NODE, MEMBLOCK_HOTPLUG | MEMBLOCK_DRIVER_MANAGED, p_start, \
                       p_end, NULL)

// Walks memory that may be mapped, highest first.
#define for_each_mem_range_rev(i, p_start, p_end)                                                                   \
  __for_each_mem_range_rev(i, &memblock.memory, NULL, NUMA_NO_NODE, MEMBLOCK_HOTPLUG | MEMBLOCK_DRIVER_MANAGED, p_start, \
                           p_end, NULL)

// Walks reservations, lowest first.
#define for_each_reserved_mem_range(i, p_start, p_end) \
  __for_each_mem_range(i, &memblock.reserved, NULL, NUMA_NO_NODE, MEMBLOCK_NONE, p_start, p_end, NULL)

// Walks free memory of a node, lowest first.
#define for_each_free_mem_range(i, nid, flags, p_start, p_end, p_nid) \
  __for_each_mem_range(i, &memblock.memory, &memblock.reserved, nid, flags, p_start, p_end, p_nid)

// Walks free memory of a node, highest first.
#define for_each_free_mem_range_reverse(i, nid, flags, p_start, p_end, p_nid) \
  __for_each_mem_range_rev(i, &memblock.memory, &memblock.reserved, nid, flags, p_start, p_end, p_nid)

// Walks the whole pages of the memory regions of a node, lowest first. `i` is an int.
#define for_each_mem_pfn_range(i, nid, p_start, p_end, p_nid)                        \
  for (i = -1, __next_mem_pfn_range(&i, nid, p_start, p_end, p_nid); i >= 0; \
       __next_mem_pfn_range(&i, nid, p_start, p_end, p_nid))

// Walks the regions of memory. `region` is a struct memblock_region pointer.
#define for_each_mem_region(region) \
  for (region = memblock.memory.regions; region < memblock.memory.regions + memblock.memory.cnt; region++)

// Walks the regions of reservations.
#define for_each_reserved_mem_region(region) \
  for (region = memblock.reserved.regions; region < memblock.reserved.regions + memblock.reserved.cnt; region++)
