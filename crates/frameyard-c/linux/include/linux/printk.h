/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's log is standard output. */
#ifndef FRAMEYARD_LINUX_PRINTK_H
#define FRAMEYARD_LINUX_PRINTK_H

#include <stdio.h>

#define printk printf
#define pr_debug printk
#define pr_info printk
#define pr_cont printk
#define pr_warn printk
#define pr_err printk

#endif
