/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Conditions that hold when a program is compiled. */
#ifndef FRAMEYARD_LINUX_BUILD_BUG_H
#define FRAMEYARD_LINUX_BUILD_BUG_H

#define BUILD_BUG_ON(condition) ((void)sizeof(char[1 - 2 * !!(condition)]))

#endif
