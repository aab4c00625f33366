/* The beginning of the program, and the kernel's side of the yard: memory, CPUs, output. */
#include "freestanding.h"

struct this_cpu cpus[2] = {{0, 0}, {1, 0}};
uint32_t running;
__attribute__((aligned(4096))) unsigned char memory[FRAMES * FRAME_BYTES];

/* The stack of the CPUs. A program that needs more than the header promises writes below it, into paint that must stay. */
__attribute__((used, aligned(64))) static uint64_t stack[2 * STACK_BYTES / sizeof(uint64_t)];
#define STACK_WORDS (sizeof stack / sizeof stack[0])
#define PAINT 0x5a5a12349876a5a5u

static long system_call(long number, long first, long second, long third) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}

void print(const char *text) {
  long length = 0;
  while (text[length] != 0) length++;
  (void)system_call(1, 1, (long)text, length);
}

void print_number(uint64_t number) {
  char digits[24];
  int at = 23;
  digits[at] = 0;
  do {
    digits[--at] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0);
  print(digits + at);
}

__attribute__((noreturn)) void leave_program(int status) {
  for (;;) (void)system_call(60, status, 0, 0);
}

/* Not inlined: nothing below its frame is in use. */
__attribute__((noinline)) void paint_stack(void) {
  volatile uint64_t *word = stack;
  const uintptr_t end = (uintptr_t)__builtin_frame_address(0) - 256;
  while ((uintptr_t)word < end) *word++ = PAINT;
}

size_t stack_used(void) {
  const volatile uint64_t *word = stack;
  while (*word == PAINT) word++;
  return (size_t)((const unsigned char *)(stack + STACK_WORDS) - (const volatile unsigned char *)word);
}

static fy_guard enter(void *context) {
  (void)context;
  return fy_inline_enter();
}

static void leave(void *context, fy_guard guard) {
  (void)context;
  fy_inline_leave(guard);
}

static uint32_t current_cpu(void *context) {
  (void)context;
  return fy_inline_current_cpu();
}

/* No other CPU runs while this one does, and the caller has no guard. */
static int32_t end_sequences(void *context, uint32_t cpu) {
  (void)context;
  (void)cpu;
  return cpus[running].interrupts_off == 0 ? 1 : -1;
}

static void *frame_bytes(void *context, uint64_t frame) {
  (void)context;
  if (frame < FIRST_FRAME || frame - FIRST_FRAME >= FRAMES) return NULL;
  return memory + (frame - FIRST_FRAME) * FRAME_BYTES;
}

static void log_line(void *context, uint32_t level, const char *text) {
  static const char *const levels[] = {"error: ", "warning: ", "log: "};
  (void)context;
  print(level <= FY_LOG_INFO ? levels[level] : "");
  print(text);
  print("\n");
}

static void panic(const char *text) {
  print("panic: ");
  print(text);
  print("\n");
  leave_program(101);
}

fy_platform_ops kernel_ops(void) {
  fy_platform_ops ops = fy_platform_ops_default();
  ops.enter = enter;
  ops.leave = leave;
  ops.current_cpu = current_cpu;
  ops.end_sequences = end_sequences;
  ops.frame_bytes = frame_bytes;
  ops.log = log_line;
  ops.panic = panic;
  return ops;
}

/* `arguments` is where the kernel of the host puts the number of arguments, and their addresses behind it. */
__attribute__((used, noreturn)) static void begin(const uintptr_t *arguments) {
  uint64_t number = 0;
  if (arguments[0] > 1) {
    const char *digit = (const char *)arguments[2];
    while (*digit >= '0' && *digit <= '9') number = number * 10 + (uint64_t)(*digit++ - '0');
  }
  paint_stack();
  leave_program(kernel(number));
}

#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

__asm__(
    ".globl _start\n"
    "_start:\n"
    "  xor %ebp, %ebp\n"
    "  mov %rsp, %rdi\n"
    "  lea stack + 2 * " TEXT(STACK_BYTES) "(%rip), %rsp\n"
    "  call begin\n");
