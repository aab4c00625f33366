/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Marks of code that kernels discard after their start: nothing here. */
#ifndef FRAMEYARD_LINUX_INIT_H
#define FRAMEYARD_LINUX_INIT_H

#include <linux/types.h>

#endif
