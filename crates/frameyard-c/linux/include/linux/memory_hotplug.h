/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whether allocations avoid hotpluggable memory: the program decides. */
#ifndef FRAMEYARD_LINUX_MEMORY_HOTPLUG_H
#define FRAMEYARD_LINUX_MEMORY_HOTPLUG_H

#include <linux/cache.h>
#include <linux/numa.h>
#include <linux/pfn.h>
#include <linux/types.h>

extern bool movable_node_enabled;

static inline bool movable_node_is_enabled(void)
{
  return movable_node_enabled;
}

#endif
