/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The alignment of allocations that name none. */
#ifndef FRAMEYARD_LINUX_CACHE_H
#define FRAMEYARD_LINUX_CACHE_H

#ifndef L1_CACHE_SHIFT
#define L1_CACHE_SHIFT 6
#endif
#define L1_CACHE_BYTES (1 << L1_CACHE_SHIFT)
#define SMP_CACHE_BYTES L1_CACHE_BYTES

#endif
