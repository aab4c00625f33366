/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Limits of the kernel's types. */
#ifndef FRAMEYARD_LINUX_LIMITS_H
#define FRAMEYARD_LINUX_LIMITS_H

#include_next <linux/limits.h>
#include <linux/types.h>
#include <limits.h>

#define PHYS_ADDR_MAX (~(phys_addr_t)0)

#endif
