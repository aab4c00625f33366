/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory nodes: the numbers of the library, whatever the configuration says. */
#ifndef FRAMEYARD_LINUX_NUMA_H
#define FRAMEYARD_LINUX_NUMA_H

#define NODES_SHIFT 10
#define MAX_NUMNODES (1 << NODES_SHIFT)
#define NUMA_NO_NODE (-1)

#endif
