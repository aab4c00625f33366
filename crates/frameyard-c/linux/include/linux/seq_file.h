/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Programs around memblock only include this name. */
#ifndef FRAMEYARD_LINUX_SEQ_FILE_H
#define FRAMEYARD_LINUX_SEQ_FILE_H

struct seq_file;

#endif
