/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's basic types, for hosted programs. */
#ifndef FRAMEYARD_LINUX_TYPES_H
#define FRAMEYARD_LINUX_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

typedef u64 phys_addr_t;
typedef phys_addr_t resource_size_t;

#define __init
#define __initdata
#define __meminit
#define __always_unused __attribute__((unused))
#define __maybe_unused __attribute__((unused))

#endif
