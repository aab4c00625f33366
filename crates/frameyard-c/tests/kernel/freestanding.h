/* A program without a C library or an operating system, apart from two system calls of Linux on x86-64: it stands for a kernel with two
 * CPUs, which one thread plays in turn. */
#ifndef FREESTANDING_H
#define FREESTANDING_H

#include <frameyard_core.h>

/* What each CPU has for itself. A real kernel finds it through a segment register. */
struct this_cpu {
  uint32_t number;
  uint32_t interrupts_off; /* guards that the CPU holds */
};

extern struct this_cpu cpus[2];
extern uint32_t running; /* the CPU that the thread plays */

static inline fy_guard fy_inline_enter(void) {
  fy_guard guard;
  struct this_cpu *cpu = &cpus[running];
  guard.cpu = cpu->number;
  guard.state = cpu->interrupts_off;
  cpu->interrupts_off = 1;
  __asm__ volatile("" ::: "memory");
  return guard;
}

static inline void fy_inline_leave(fy_guard guard) {
  __asm__ volatile("" ::: "memory");
  cpus[guard.cpu].interrupts_off = guard.state;
}

static inline uint32_t fy_inline_current_cpu(void) { return cpus[running].number; }

void print(const char *text);
void print_number(uint64_t number);
__attribute__((noreturn)) void leave_program(int status);
fy_platform_ops kernel_ops(void);

/* The stack that the library needs at most, as its header says. The program itself runs on it, too. */
#define STACK_BYTES 16384

/* Forgets what has been used of the stack. */
void paint_stack(void);
/* The bytes of the stack that have been used, those of the callers included. More than STACK_BYTES: it has overflowed. */
size_t stack_used(void);

/* The program: it gets the number of its first argument, or 0. */
int kernel(uint64_t argument);

#define FRAME_BYTES 4096u
#define FIRST_FRAME 0x1000u
#define FRAMES 4096u

extern unsigned char memory[FRAMES * FRAME_BYTES];

#endif
