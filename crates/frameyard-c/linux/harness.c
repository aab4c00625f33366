/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel's tests of memblock need beside the library: their reports, and the settings of the kernel that they test. */
#include <stdarg.h>
#include <stdio.h>

#include <linux/memblock.h>
#include <linux/memory_hotplug.h>

#include "selftests/kselftest.h"

static unsigned int number;

void ksft_test_result_pass(const char *format, ...)
{
  va_list arguments;

  va_start(arguments, format);
  printf("ok %u ", ++number);
  vprintf(format, arguments);
  va_end(arguments);
}

void ksft_test_result_fail(const char *format, ...)
{
  va_list arguments;

  va_start(arguments, format);
  printf("not ok %u ", ++number);
  vprintf(format, arguments);
  va_end(arguments);
  fflush(stdout);
}

static bool asks_the_program(void)
{
  return movable_node_enabled;
}

/* Runs before main. */
__attribute__((constructor)) static void choose_kernel(void)
{
  frameyard_memblock.movable_node_is_enabled = asks_the_program;
#ifdef EMPTY_LIST_HAS_REGION
  /* Linux before 6.10. */
  frameyard_memblock.empty_list_has_region = true;
  memblock.memory.cnt = 1;
  memblock.reserved.cnt = 1;
#endif
}
