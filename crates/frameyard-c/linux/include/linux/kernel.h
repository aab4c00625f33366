/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel's common header has, as far as programs around memblock use it. */
#ifndef FRAMEYARD_LINUX_KERNEL_H
#define FRAMEYARD_LINUX_KERNEL_H

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include <linux/build_bug.h>
#include <linux/limits.h>
#include <linux/printk.h>
#include <linux/types.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define ALIGN(x, a) (((x) + (__typeof__(x))(a)-1) & ~((__typeof__(x))(a)-1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a)-1))
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a)-1)) == 0)
#define min(x, y) ((x) < (y) ? (x) : (y))
#define max(x, y) ((x) > (y) ? (x) : (y))
#define BUG_ON(condition) assert(!(condition))
#define WARN_ON(condition) (condition)

#endif
