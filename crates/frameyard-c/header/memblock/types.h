
#ifndef FRAMEYARD_MEMBLOCK_KERNEL_TYPES
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A number of 64 bits.
typedef uint64_t u64;

// A physical address or a size in bytes.
typedef uint64_t phys_addr_t;
#endif

// Bytes of a page are 2 to this power.
#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12
#endif

// The library's number of nodes. Nodes have the numbers below it. Itself it is the node of regions that have none.
#ifndef MAX_NUMNODES
#define MAX_NUMNODES 1024
#endif

// No node, or any node.
#ifndef NUMA_NO_NODE
#define NUMA_NO_NODE (-1)
#endif

// The lowest minimum of an allocation.
#define MEMBLOCK_LOW_LIMIT 0

// A maximum: the end of the address space.
#define MEMBLOCK_ALLOC_ANYWHERE (~(phys_addr_t)0)

// A maximum: memblock.current_limit.
#define MEMBLOCK_ALLOC_ACCESSIBLE 0

// A maximum: memblock.current_limit.
#define MEMBLOCK_ALLOC_NOLEAKTRACE 1

// The maximum of memblock_alloc_low.
#ifndef ARCH_LOW_ADDRESS_LIMIT
#define ARCH_LOW_ADDRESS_LIMIT 0xffffffffUL
#endif

// Flags of a region.
enum memblock_flags {
  // No flag.
  MEMBLOCK_NONE = 0x0,
  // Hotpluggable: may be removed later.
  MEMBLOCK_HOTPLUG = 0x1,
  // Mirrored by the hardware.
  MEMBLOCK_MIRROR = 0x2,
  // Must not be mapped, so it is never allocated.
  MEMBLOCK_NOMAP = 0x4,
  // Added and managed by a driver, so it is never allocated here.
  MEMBLOCK_DRIVER_MANAGED = 0x8,
  // Reserved memory whose page structures must not be initialised.
  MEMBLOCK_RSRV_NOINIT = 0x10
};
