/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Page numbers and addresses. */
#ifndef FRAMEYARD_LINUX_PFN_H
#define FRAMEYARD_LINUX_PFN_H

#include <linux/types.h>

#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12
#endif
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define PAGE_ALIGN(address) (((address) + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1))
#define PAGE_MASK (~(PAGE_SIZE - 1))

#define PFN_DOWN(x) ((unsigned long)((x) >> PAGE_SHIFT))
#define PFN_UP(x) ((unsigned long)(((x) + PAGE_SIZE - 1) >> PAGE_SHIFT))
#define PFN_PHYS(x) ((phys_addr_t)(x) << PAGE_SHIFT)
#define PFN_ALIGN(x) (((unsigned long)(x) + PAGE_SIZE - 1) & PAGE_MASK)
#define PHYS_PFN(x) ((unsigned long)((x) >> PAGE_SHIFT))

#endif
