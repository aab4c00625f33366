/* The hooks of libframeyard_core_hooks.a, from the kernel's own inline functions.
 *
 *   cc ... -DFY_PLATFORM_HEADER='"my_hooks.h"' -c frameyard_hooks.c
 *
 * The header defines, as macros or inline functions:
 *   fy_guard fy_inline_enter(void);         takes a guard on the caller's CPU (see `enter` in fy_platform_ops)
 *   void fy_inline_leave(fy_guard guard);   drops it
 *   uint32_t fy_inline_current_cpu(void);   the number of the CPU that runs the caller
 *
 * The library calls them directly, without a load of a pointer and of a context. */
#include <frameyard_core.h>

#ifndef FY_PLATFORM_HEADER
#error "define FY_PLATFORM_HEADER as the name of the header with the hooks"
#endif
#include FY_PLATFORM_HEADER

fy_guard fy_hook_enter(void);
void fy_hook_leave(fy_guard guard);
uint32_t fy_hook_current_cpu(void);

fy_guard fy_hook_enter(void) { return fy_inline_enter(); }

void fy_hook_leave(fy_guard guard) { fy_inline_leave(guard); }

uint32_t fy_hook_current_cpu(void) { return fy_inline_current_cpu(); }
