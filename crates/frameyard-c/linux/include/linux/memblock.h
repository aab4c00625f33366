/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The early allocator, for code that is written for the kernel. */
#ifndef FRAMEYARD_LINUX_MEMBLOCK_H
#define FRAMEYARD_LINUX_MEMBLOCK_H

#include <linux/cache.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/numa.h>
#include <linux/pfn.h>
#include <linux/types.h>

#define FRAMEYARD_MEMBLOCK_KERNEL_TYPES
#include <memblock.h>

#endif
